"""Random cells in random layers, on the engine that is asked for and on the plain loop: the same numbers, or a reason.

    PYTHONPATH=tests python tests/engine/random_cases.py --seeds 0:200  # the compiled engine on this machine
    PYTHONPATH=tests python tests/engine/random_cases.py --seeds 0:200 --device cuda  # the engine of a card
    PYTHONPATH=tests python tests/engine/random_cases.py --seeds 17 --show

A case is a layer of a random cell (its sizes, depth, directions, what is frozen) and one call of it (lengths, resets,
states, what the loss reads). A failure prints the cell and the case.
"""

import argparse
import copy
import random
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from engine.random_cells import RandomCell, random_cell
from torch import Tensor

import recurra as rc
from recurra.cell import TIME
from recurra.engine.backend import EngineWarning
from recurra.engine.cpu import compiler
from recurra.errors import OptionError

Named = dict[str, Tensor]
# How far two ways to add up the same numbers may be apart, relative to the norm of a result.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-3}
FLOOR = {torch.float64: 1e-6, torch.float32: 1e-3}  # a norm below which a result is what rounding left of zero
LOOKS = ("values", "trace", "inference", "stream", "twice")


@dataclass(frozen=True)
class Case:
    D: int
    H: int
    T: int
    B: int
    dtype: torch.dtype = torch.float64
    layers: int = 1
    bidirectional: Any = False
    batch_first: bool = False
    depth: str = "stack"
    initial: str = "zeros"
    checkpoint: bool = False
    modifier: str = ""
    ragged: bool = False
    resets: bool = False
    state: bool = False  # initial states are given
    calls: int = 1  # the state of one is given to the next
    reads: str = "both"  # what the loss reads: "y", "state" or "both"
    x_needs_gradient: bool = True
    frozen: float = 0.0  # the share of parameters that are not trained
    threads: int = 1
    replayed: bool = False  # as if there were no compiler
    look: str = "values"
    seed: int = 0

    def __str__(self) -> str:
        plain = {f.name: f.default for f in fields(self)}
        changed = {n: v for n in plain if (v := getattr(self, n)) != plain[n]}
        return "Case(" + ", ".join(f"{name}={value!r}" for name, value in changed.items()) + ")"


@dataclass(frozen=True)
class Failure:
    cell: RandomCell
    case: Case
    what: str

    def __str__(self) -> str:
        return f"random cell {self.cell.seed}, {self.case}\n{self.what}\n\n{self.cell.source}"


@dataclass
class Outcome:
    """What became of some cases."""

    failures: list[Failure] = field(default_factory=list)
    backends: Counter = field(default_factory=Counter)
    reasons: dict[str, int] = field(default_factory=dict)  # why the plain loop ran → a seed


# ---------------------------------------------------------------------------------------------------- cases


def cases(cell: RandomCell, count: int, device: str = "cpu") -> list[Case]:
    """Some cases for a cell: the first is always one layer, trained, in float64 where the device has it."""
    rng = random.Random(f"cases {cell.seed}")
    drawn = [_plain(rng, i) if i == 0 else _case(rng, cell, i) for i in range(count)]
    if device == "cpu":
        return drawn
    kept = {"dtype": torch.float32, "threads": 1, "replayed": False}
    return [Case(**{f.name: kept.get(f.name, getattr(case, f.name)) for f in fields(case)}) for case in drawn]


def _sizes(rng: random.Random) -> dict[str, int]:
    return {
        "D": rng.choice([1, 2, 3, 5, 7, 9, 66]),
        "H": rng.choice([4, 5, 7, 9, 17, 33, 67]),
        "T": rng.choice([1, 2, 3, 3, 5, 17]),
        "B": rng.choice([1, 2, 2, 5, 5, 33]),
    }


def _plain(rng: random.Random, number: int) -> Case:
    return Case(**_sizes(rng), state=True, seed=number)


def _case(rng: random.Random, cell: RandomCell, number: int) -> Case:
    chance = rng.random
    look = rng.choices(LOOKS, [10, 2, 2, 2, 1 if cell.smooth else 0])[0]
    streamed, twice = look == "stream", look == "twice"
    return Case(
        **_sizes(rng),
        dtype=torch.float32 if chance() < 0.15 and not twice else torch.float64,
        layers=rng.choice([1, 1, 1, 2]),
        bidirectional=False if streamed else rng.choices([False, True, "separate"], [6, 2, 1])[0],
        batch_first=chance() < 0.2,
        depth=rng.choices(["stack", "graves"], [8, 1])[0],
        initial="zeros" if streamed else rng.choices(["zeros", "learned", "carried"], [6, 2, 1])[0],
        checkpoint=chance() < 0.12 and look == "values",
        modifier="" if streamed else rng.choices(["", "Zoneout", "VariationalDropout", "LayerNorm"], [24, 1, 1, 1])[0],
        ragged=chance() < 0.3 and not streamed,
        resets=chance() < 0.12 and not streamed,
        state=chance() < 0.6,
        calls=1 if streamed else rng.choice([1, 1, 1, 2]),
        reads=rng.choice(["y", "state", "both", "both"]),
        x_needs_gradient=chance() < 0.8,
        frozen=rng.choice([0.0, 0.0, 0.3, 1.0]) if not twice else 0.0,
        threads=rng.choice([1, 1, 2, 3]),
        replayed=chance() < 0.08 and not streamed,
        look=look,
        seed=number,
    )


def made(cell: RandomCell, case: Case, device: str) -> rc.Recurrent:
    torch.manual_seed(1000 * cell.seed + case.seed)
    modifiers = {"": (), "LayerNorm": rc.LayerNorm()}
    layer = rc.Recurrent(
        cell.cell_class,
        case.D,
        case.H,
        case.layers,
        batch_first=case.batch_first,
        bidirectional=case.bidirectional,
        depth=case.depth,
        initial=case.initial,
        checkpoint=case.checkpoint,
        modifiers=modifiers[case.modifier] if case.modifier in modifiers else getattr(rc, case.modifier)(0.3),
        dtype=case.dtype,
        device=device,
    )
    rng = random.Random(case.seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.02 * torch.randn_like(parameter)  # zeros and equal numbers hide mistakes
            parameter.requires_grad_(rng.random() >= case.frozen)
    return layer.eval() if case.look == "stream" else layer


# ---------------------------------------------------------------------------------------------------- one call


@dataclass(frozen=True)
class Given:
    xs: list[Tensor]
    state: Any
    more: dict[str, Any]


def given(layer: rc.Recurrent, case: Case, device: str) -> Given:
    torch.manual_seed(case.seed + 7)
    leading = (case.B, case.T) if case.batch_first else (case.T, case.B)
    like = {"dtype": case.dtype, "device": device}
    xs = [torch.randn(*leading, case.D, **like).requires_grad_(case.x_needs_gradient) for _ in range(case.calls)]
    more: dict[str, Any] = {}
    if case.ragged:
        more["lengths"] = torch.randint(1, case.T + 1, (case.B,))
    if case.resets:
        more["resets"] = (torch.rand(*leading) < 0.3).to(device)
    return Given(xs, _states(layer, case, like) if case.state else None, more)


def _states(layer: rc.Recurrent, case: Case, like: dict) -> Any:
    """One tensor a state, or, where layers differ, one a layer and direction; a time index is a count."""
    with torch.no_grad(), rc.set_backend("reference"):
        x = torch.zeros(*((case.B, 1) if case.batch_first else (1, case.B)), case.D, **like)
        found = copy.deepcopy(layer)(x)[1]
    names = [spec.name for spec in layer.cell_list[0].carried]
    drawn = [_drawn(name, value) for name, value in zip(names, found if len(names) > 1 else (found,), strict=True)]
    return tuple(drawn) if len(names) > 1 else drawn[0]


def _drawn(name: str, value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_drawn(name, part) for part in value)
    if name == TIME:
        return torch.zeros_like(value)
    return (0.5 * torch.randn_like(value)).requires_grad_()


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [t for part in value for t in _tensors(part)]


def called(layer: rc.Recurrent, case: Case, asked: Given) -> tuple[Named, Named]:
    """The results of a layer and every requested gradient, by name."""
    layer = copy.deepcopy(layer)  # what it remembers is its own
    torch.manual_seed(case.seed + 11)  # the masks
    state, found = asked.state, {}
    for number, x in enumerate(asked.xs):
        y, state, *trace = layer(x, state, return_trace=case.look == "trace", **asked.more)
        found[f"y of call {number}"] = y
        for name, value in trace[0].items() if trace else ():
            found |= {f"{name}, {i}": v for i, v in enumerate(_tensors(value))}
    found |= {f"state {i}": value for i, value in enumerate(_tensors(state))}
    return found, _pulled(layer, case, asked, found) if torch.is_grad_enabled() else {}


def _pulled(layer: rc.Recurrent, case: Case, asked: Given, found: Named) -> Named:
    read = {"y": "y of", "state": "state", "both": ""}[case.reads]
    generator = torch.Generator().manual_seed(5)
    cotangents = {
        n: torch.randn(v.shape, dtype=torch.float64, generator=generator).to(v) for n, v in sorted(found.items())
    }
    pulled = {n: v for n, v in found.items() if n.startswith(read) and v.requires_grad}
    leaves = {f"x {i}": x for i, x in enumerate(asked.xs)}
    leaves |= {f"initial state {i}": s for i, s in enumerate(_tensors(asked.state) if asked.state is not None else [])}
    leaves |= dict(layer.named_parameters())
    wanted = {n: leaf for n, leaf in leaves.items() if leaf.requires_grad}
    if not pulled or not wanted:
        return {}
    twice = case.look == "twice"
    first = torch.autograd.grad(
        list(pulled.values()),
        list(wanted.values()),
        [cotangents[n] for n in pulled],
        allow_unused=True,
        create_graph=twice,
    )
    gradients = {n: g for n, g in zip(wanted, first, strict=True) if g is not None}
    if twice and (again := [g for g in gradients.values() if g.requires_grad]):
        total = sum((g**2).sum() for g in again)
        second = torch.autograd.grad(total, list(wanted.values()), allow_unused=True)  # pyrefly: ignore
        gradients |= {f"second, {n}": g for n, g in zip(wanted, second, strict=True) if g is not None}
    return gradients


# ---------------------------------------------------------------------------------------------------- comparing


def apart(found: Named, expected: Named) -> dict[str, float]:
    """The relative norm of the difference, of what is not small beside the rest; a gradient missing here is zero."""
    if not expected:
        return {}
    floor = FLOOR[next(iter(expected.values())).dtype]
    scale = max(float(e.detach().norm()) for e in expected.values()) * 1e-3 + floor
    far = {}
    for name, e in expected.items():
        f = found.get(name)
        if f is None or f.shape != e.shape or f.dtype != e.dtype:
            far[name] = float(e.detach().norm()) / scale if f is None else float("inf")
        else:
            far[name] = float((f - e).detach().norm()) / (float(e.detach().norm()) + scale)
    return far | {name: float(f.norm()) / scale for name, f in found.items() if name not in expected}


def check(cell: RandomCell, case: Case, device: str = "cpu") -> tuple[str, str]:
    """(what is wrong, or nothing; which engine ran and why)."""
    try:
        layer = made(cell, case, device)
    except OptionError as error:  # a modifier that the cell is not made for
        return "", f"backend: refused ({error})"
    asked = given(layer, case, device)
    with rc.set_backend("reference"):
        values, gradients = called(layer, case, asked)
    with rc.set_backend("compiled"), _circumstances(case):
        ran = _engine(layer, case, asked)
        mine, pulled = called(layer, case, asked)
        far = apart(mine, values) | {f"d {n}": v for n, v in apart(pulled, gradients).items()}
        if case.look == "inference":
            with torch.no_grad():
                far |= {f"{n} without gradients": v for n, v in apart(called(layer, case, asked)[0], values).items()}
        if case.look == "stream":
            far |= {f"{n}, streamed": v for n, v in apart(_streamed(layer, case, asked), values).items()}
    limit = max(TOLERANCE[case.dtype], cell.tolerance)
    wrong = {name: v for name, v in far.items() if not v <= limit}
    if wrong and case.dtype == torch.float32:
        rounding = _rounding(layer, case, asked)
        wrong = {name: v for name, v in wrong.items() if not v <= 8 * rounding.get(name, 0.0)}
    if wrong and case.dtype == torch.float64:
        amplified = _amplified(layer, case, asked, values, gradients)
        wrong = {name: v for name, v in wrong.items() if not v <= 64 * amplified.get(name, 0.0)}
    return ", ".join(f"{name}: {v:.1e}" for name, v in wrong.items()), ran


def _rounding(layer: rc.Recurrent, case: Case, asked: Given) -> dict[str, float]:
    """How far the plain loop is from itself in float64, without draws: a normalised row of equal numbers, say, is what
    rounding left of zero, times 1 / sqrt(eps).
    """
    layer = copy.deepcopy(layer).eval()
    exact = copy.deepcopy(layer).double()
    with rc.set_backend("reference"):
        values, gradients = called(layer, case, asked)
        true_values, true_gradients = called(exact, case, Given(*map(_as_float64, (asked.xs, asked.state)), asked.more))
    true_values = {n: v.to(values[n].dtype) for n, v in true_values.items()}
    true_gradients = {n: v.to(torch.float32) for n, v in true_gradients.items()}
    return apart(values, true_values) | {f"d {n}": v for n, v in apart(gradients, true_gradients).items()}


def _amplified(layer: rc.Recurrent, case: Case, asked: Given, values: Named, gradients: Named) -> dict[str, float]:
    """How far the plain loop is from itself after one unit of rounding in every weight: chaotic cells amplify it."""
    moved, generator = copy.deepcopy(layer), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in moved.parameters():
            signs = torch.rand(weight.shape, generator=generator, dtype=torch.float64).sub_(0.5).sign_()
            weight *= 1 + torch.finfo(torch.float64).eps * signs.to(weight)
    with rc.set_backend("reference"):
        other, pulled = called(moved, case, asked)
    return apart(other, values) | {f"d {n}": v for n, v in apart(pulled, gradients).items()}


def _as_float64(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().double().requires_grad_(value.requires_grad) if value.is_floating_point() else value
    return value if value is None else type(value)(map(_as_float64, value))


def _engine(layer: rc.Recurrent, case: Case, asked: Given) -> str:
    lines = rc.explain(layer, asked.xs[0]).splitlines()
    return next(line.strip() for line in lines if "backend:" in line)


def _streamed(layer: rc.Recurrent, case: Case, asked: Given) -> Named:
    """The same sequence step by step."""
    with torch.no_grad():
        state, rows = asked.state, []
        for x in asked.xs[0].unbind(1 if case.batch_first else 0):
            y, state = layer.step(x, state)
            rows.append(y)
    y = torch.stack(rows, 1 if case.batch_first else 0)
    return {"y of call 0": y} | {f"state {i}": value for i, value in enumerate(_tensors(state))}


@contextmanager
def _circumstances(case: Case) -> Iterator[None]:
    before, found = torch.get_num_threads(), compiler.find_compiler
    torch.set_num_threads(case.threads)
    if case.replayed:
        compiler.find_compiler = _no_compiler  # pyrefly: ignore
    try:
        yield
    finally:
        torch.set_num_threads(before)
        compiler.find_compiler = found


def _no_compiler() -> None:
    return None


def run(seed: int, count: int, device: str, outcome: Outcome, tell: Callable[[Failure], None] | None = None) -> None:
    """All cases of one cell, added to what became of those before."""
    cell = random_cell(seed)
    for case in cases(cell, count, device):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*did not compile.*", category=EngineWarning)
            warnings.filterwarnings("ignore", category=EngineWarning)
            try:
                wrong, ran = check(cell, case, device)
            except Exception:
                wrong, ran = traceback.format_exc(limit=-12), "backend: none"
        backend, reason = re.findall(r"backend: (\w+)(?: \((.*)\))?$", ran)[0]
        outcome.backends[backend] += 1
        if backend == "reference":
            outcome.reasons.setdefault(reason, seed)
        if wrong:
            failure = Failure(cell, case, wrong)
            outcome.failures.append(failure)
            if tell:
                tell(failure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:40", help="one, or first:beyond")
    parser.add_argument("--cases", type=int, default=6, help="how many a cell")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", action="store_true", help="print every cell")
    given = parser.parse_args()
    first, _, beyond = given.seeds.partition(":")
    torch.set_num_threads(1)
    outcome = Outcome()
    for seed in range(int(first), int(beyond or int(first) + 1)):
        if given.show:
            print(random_cell(seed).source, *cases(random_cell(seed), given.cases, given.device), sep="\n", flush=True)
        run(seed, given.cases, given.device, outcome, lambda failure: print("FAILED", failure, flush=True))
    print(dict(outcome.backends), f"{len(outcome.failures)} failures", flush=True)
    for reason, seed in outcome.reasons.items():
        print(f"  on the plain loop, as cell {seed}: {reason}")
    sys.exit(bool(outcome.failures))


if __name__ == "__main__":
    main()
