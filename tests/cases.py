"""The one table of cases: every registered cell, with the options that change its equations, at small sizes.

A new cell gets a row with its default options by itself; a row of its own here is only needed for options.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.cell import TIME
from recurra.cells import canonical_names

Options = dict[str, Any]

# States that are sums of positive numbers.
POSITIVE = (("SLSTM", "n"), ("LinearTransformer", "z"), ("AdaptiveLIF", "a"))
ALIVE = 6  # with this seed no network of rectifiers in the table is dead


@dataclass(frozen=True)
class Case:
    """One cell with one set of options and sizes; parameters are random, so that no zero and no one hides a term."""

    name: str
    options: Options = field(default_factory=dict)
    input_size: int = 3
    hidden_size: int = 4

    def __str__(self) -> str:
        given = ",".join(f"{key}={_short(value)}" for key, value in self.options.items())
        sizes = "" if (self.input_size, self.hidden_size) == (3, 4) else f"-{self.input_size}x{self.hidden_size}"
        return f"{self.name}{sizes}" + (f"({given})" if given else "")

    def cell(self, seed: int = ALIVE, dtype: torch.dtype = torch.float64, **sizes: int) -> rc.Cell:
        """The cell itself; `input_size=` and `hidden_size=` override the case's."""
        wanted = {"input_size": self.input_size, "hidden_size": self.hidden_size, **sizes}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            cell = rc.registry()[self.name](**wanted, **self.options).to(dtype)
            return randomise(cell)

    def layer(self, seed: int = ALIVE, dtype: torch.dtype = torch.float64, **arguments: Any) -> rc.Recurrent:
        """A layer of such cells; `arguments` are those of `rc.layer`."""
        wanted = {"input_size": self.input_size, "hidden_size": self.hidden_size, "dtype": dtype, **arguments}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return randomise(rc.layer(self.name, **wanted, **self.options))


def _short(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return "-".join(map(str, value))
    return getattr(value, "__name__", str(value))


SPIKING = [name for name in canonical_names() if rc.registry()[name].__module__.endswith(".spiking")]


@torch.no_grad()
def randomise(module: nn.Module, bound: float = 0.9) -> Any:
    """Every parameter drawn anew, evenly from ±bound."""
    for parameter in module.parameters():
        parameter.uniform_(-bound, bound)
    return module


def draw_states(cell: rc.Cell, batch: int, seed: int = 1) -> tuple[Tensor, ...]:
    """A state to start from that is not zero: random, positive where a state is a sum of positive numbers."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for state in cell.carried:
        if state.name == TIME:
            drawn.append(torch.full(state.shape(batch), 3.0, dtype=torch.float64))
            continue
        value = torch.rand(state.shape(batch), generator=generator, dtype=torch.float64) * 2 - 1
        drawn.append(value.abs() + 0.5 if (type(cell).__name__, state.name) in POSITIVE else value)
    return tuple(drawn)


def draw_inputs(case: Case, steps: int = 5, batch: int = 2, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, batch, case.input_size, generator=generator, dtype=torch.float64)  # (T, B, D)
    if case.name == "gru_d":
        missing = torch.rand(x.shape, generator=generator) < 0.4
        missing[..., -1] &= not case.options.get("timed", False)
        x[missing] = math.nan
    if case.options.get("timed"):
        x[..., -1] = x[..., -1].abs()
    return x


def softsign(a: Tensor) -> Tensor:
    """A squashing function that has no name in recurra."""
    return a / (1 + a.abs())


OPTIONS: dict[str, list[Options]] = {
    "rnn": [{"nonlinearity": "relu"}, {"nonlinearity": "sigmoid"}, {"nonlinearity": softsign}],
    "jordan_rnn": [{"output_size": 2, "decay": 0.2}],
    "orthogonal_rnn": [{"nonlinearity": "identity"}, {"determinant": -1}],
    "rin": [{"transitions": 2}],
    "delay_rnn": [{"delays": (1,)}, {"delays": (2,)}, {"delays": (4, 1, 2)}],
    "leaky_rnn": [{"tau": 1.0}, {"tau": 3.5}, {"learn": True}],
    "temporal_kernel_rnn": [{"nonlinearity": "tanh"}, {"decay": 0.5, "learn": False}],
    "scrn": [{"adaptive": True}, {"context": "previous"}, {"context_size": 3, "alpha": 0.6, "start": 0.1}],
    "focused_rnn": [{"nonlinearity": "identity"}],
    "original_full_gate_lstm": [{"squash": "tanh"}],
    "original_lstm": [{"squash": "1997"}, {"squash": "1997", "block_size": 2}],
    "projection_lstm": [
        {"proj_size": 3, "output_proj_size": 2},
        {"proj_size": 2, "peepholes": False},
        {"proj_size": 2, "peepholes": False, "cell_clip": 0.4, "proj_clip": 0.2, "forget_bias": 1.0},
    ],
    "slope_lstm": [{"per": "gate"}],
    "dynamic_cortex_memory": [{"same_step": True}],
    "gru": [{"reset_after": True}],
    "indrnn": [{"longest": 2, "gamma": 0.3}],
    "slstm": [{"heads": 2}, {"forget": "exp"}],
    "cornn": [{"dt": 0.3, "gamma": 1.3, "epsilon": 0.7}],
    "antisymmetric_rnn": [{"epsilon": 0.4, "gamma": 0.2}],
    "lem": [{"dt": 0.5}],
    "janet": [{"beta": 0.3}],
    "ran": [{"nonlinearity": "identity"}],
    "fast_rnn": [{"nonlinearity": "relu"}],
    "fast_grnn": [{"rank": 2}],
    "miru1": [{"update": 0.8}],
    "miru2": [{"update": 0.8, "reset": 0.3}],
    "multiplicative_rnn": [{"factors": 3}],
    "mogrifier_lstm": [{"rounds": 0}, {"rounds": 2}],
    "elstm": [{"longest": 5}],
    "multiplicative_lstm": [{"standard": True}],
    "unicornn": [{"dt": 0.4, "alpha": 0.0}],
    "tau_gru": [{"delay": 1}, {"delay": 2}],
    "rhn": [{"transitions": 1}, {"transitions": 2, "coupled": False}],
    "fast_slow_lstm": [{"fast": 3, "slow_size": 3}],
    "ltc": [{"timed": True, "unfolds": 2}],
    "cfc": [{"timed": True, "backbone": 3}],
    "ode_rnn": [{"timed": True, "steps": 2, "units": 3}],
    "gru_d": [{"timed": True, "mean": 0.25}],
    "phased_lstm": [{"timed": True, "ratio": 0.6}],
    "lmu": [{"order": 3, "theta": 5.0}],
    "ea_lstm": [{"static": 0}, {"static": 2}],
    "mass_conserving_lstm": [{"mass": 2}, {"mass": 3}],
    "lif": [{"reset": "zero", "beta": 0.5}, {"refractory": 2, "threshold": 0.3}],
    "adaptive_lif": [{"tau": 2.0, "tau_a": 3.0, "threshold": 0.2}],
    "srm": [{"tau": 1.5, "tau_r": 3.0, "threshold": 0.2}],
    "ctrnn": [{"excitatory": 0.5, "nonlinearity": "tanh"}, {"excitatory": 0.8, "density": 0.7, "dt": 50.0}],
    "low_rank_rnn": [{"rank": 3, "tau": 2.0, "dt": 1.0}],
    "shallow_plrnn": [{"units": 3, "clipped": True}],
    "dendritic_plrnn": [{"bases": 2}],
    "al_rnn": [{"rectified": 3}],
    "block_gru": [{"blocks": 2}],
    "clockwork": [{"periods": (1, 3)}, {"periods": (1, 1, 5)}],
    "min_gru": [{"log_form": True}],
    "min_lstm": [{"log_form": True}],
    "sru": [{"peepholes": True, "scale": 1.0}],
    "qrnn": [{"window": 3, "pooling": "ifo"}, {"pooling": "f"}],
    "hgrn": [{"floor": 0.3}],
    "lru": [{"modes": 3}],
    "s5": [{"modes": 3}],
    "s4d": [{"modes": 2}],
    "mamba": [{"state_size": 2, "window": 2, "rank": 2}],
    "linear_transformer": [{"heads": 2, "key_size": 3}],
    "delta_net": [{"heads": 2, "key_size": 3}],
    "gated_delta_net": [{"heads": 2}],
    "mlstm": [{"heads": 2, "key_size": 3}],
    "retention": [{"heads": 2, "key_size": 4}],
    "gla": [{"heads": 2, "rank": 2, "temperature": 3.0}],
    "rwkv6": [{"heads": 2, "rank": 2}],
    "rwkv7": [{"heads": 2, "key_size": 3, "rank": 2}],
    "fast_weights": [{"decay": 0.8, "rate": 0.3, "loops": 2}],
}
SQUARE = (
    "mut1",
    "mut2",
    "residual_lstm",
    "intersection_rnn",
    "sru",
    "rg_lru",
)  # where the sizes agree these read x bare, without a projection


def _table(names: Sequence[str]) -> list[Case]:
    cases = []
    for name in names:
        cases += [Case(name), *(Case(name, options) for options in OPTIONS.get(name, []))]
        cases += [Case(name, input_size=4)] if name in SQUARE else []
        cases += [Case(name, {"height": 2, "width": 3}, 6, 12)] if name == "conv_lstm" else []
    return cases


CASES = _table(canonical_names())
DEFAULTS = [case for case in CASES if case == Case(case.name)]

# One cell for each kind of structure that layers, exporters and transforms treat differently.
SAMPLE = (
    *("rnn", "unitary_rnn", "delay_rnn", "scrn", "lstm", "projection_lstm", "full_gate_lstm", "gru", "slstm"),
    *("cornn", "t_gru", "clockwork", "mogrifier_lstm", "delta_net"),
)
FAMILIES = {rc.registry()[name].__module__: name for name in reversed(canonical_names())}  # the first cell of each file
REPRESENTATIVES = {*SAMPLE, *FAMILIES.values()}


def _slow_outside_sample(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, marks=() if case.name in SAMPLE else pytest.mark.slow) for case in cases]


every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_name = pytest.mark.parametrize("case", DEFAULTS, ids=str)
sampled_case = pytest.mark.parametrize("case", _slow_outside_sample(CASES), ids=str)  # the rest in the slow suite
smooth_case = pytest.mark.parametrize(  # a surrogate is no derivative of the threshold
    "case", _slow_outside_sample([case for case in CASES if case.name not in SPIKING]), ids=str
)
sampled_name = pytest.mark.parametrize("case", _slow_outside_sample(DEFAULTS), ids=str)
