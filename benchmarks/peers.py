"""Training time of four cells, by recurra and by what people would use instead, on this CPU.

    python -m benchmarks.peers [--rounds N]           some minutes on one core
    PYTHONPATH=/where/jax/is python -m benchmarks.peers    with JAX's scan beside
    python -m benchmarks.peers --device cuda          on a GPU, see peers_gpu.py
    python -m benchmarks.peers --draw                 only the picture, of the committed numbers

LSTM, GRU, a peephole LSTM and a cell that no library has; forward and backward pass of a batch, float32, at the sizes
of `SIZES`. Competitors run the same equations with the same number of weights: `torch.nn` where it has the cell,
torchrecurrent where it has it, a Python loop over a step compiled by `torch.compile`, and `jax.lax.scan` under
`jax.jit`. Processor time of one thread; medians of interleaved rounds. Writes results/peers.json, .md and .svg.
"""

import argparse
import importlib.util
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn, sigmoid, tanh

import recurra as rc
from benchmarks.bars import bar_chart, one_below_another
from benchmarks.environment import environment
from benchmarks.timing import Job, interleaved

RESULTS = Path(__file__).resolve().parent / "results"
SIZES = ((100, 32, 64, 128), (200, 16, 16, 32))  # (T, B, D, H)
CELLS = ("LSTM", "GRU", "peephole LSTM", "own cell")
PEERS = ("recurra", "torch.nn", "torchrecurrent", "compiled step in a loop", "jax.lax.scan")


class Own(rc.Cell):
    """A cell of one's own: a gated state beside a slow one."""

    states = ("h", "s")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.f, self.z = self.affine("x", "h"), self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        f = sigmoid(self.f(x, h) + s)
        s = 0.9 * s + 0.1 * h
        return f * h + (1 - f) * tanh(self.z(x, h) - s), s


def gates_of(cell: str) -> int:
    return {"LSTM": 4, "GRU": 3, "peephole LSTM": 4, "own cell": 2}[cell]


# --------------------------------------------------------------------------- the equations by hand, for the loops


def by_hand(cell: str, xp: Any, sig: Any) -> Any:
    """step(px, state, w) in the functions of torch or jax.numpy; px is the product of x with its weights, plus bias."""

    def split(a: Any, count: int) -> Any:
        return xp.split(a, a.shape[-1] // count, -1) if xp is torch else xp.split(a, count, axis=-1)

    def lstm(px: Any, state: Any, w: Any) -> Any:
        h, c = state
        i, f, o, z = split(px + h @ w["W"], 4)
        c = sig(f) * c + sig(i) * xp.tanh(z)
        return sig(o) * xp.tanh(c), c

    def peephole(px: Any, state: Any, w: Any) -> Any:
        h, c = state
        i, f, o, z = split(px + h @ w["W"], 4)
        new = sig(f + w["p_f"] * c) * c + sig(i + w["p_i"] * c) * xp.tanh(z)
        return sig(o + w["p_o"] * new) * xp.tanh(new), new

    def gru(px: Any, state: Any, w: Any) -> Any:
        h, unused = state
        (r, z, n), (r_h, z_h, n_h) = split(px, 3), split(h @ w["W"], 3)
        z = sig(z + z_h)
        return z * h + (1 - z) * xp.tanh(n + sig(r + r_h) * n_h), unused

    def own(px: Any, state: Any, w: Any) -> Any:
        h, s = state
        f, z = split(px + h @ w["W"], 2)
        f, s = sig(f + s), 0.9 * s + 0.1 * h
        return f * h + (1 - f) * xp.tanh(z - s), s

    return {"LSTM": lstm, "peephole LSTM": peephole, "GRU": gru, "own cell": own}[cell]


def weights_of(cell: str, inputs: int, units: int) -> dict[str, Tensor]:
    wide, scale = gates_of(cell) * units, units**-0.5
    made = {"U": torch.randn(inputs, wide) * scale, "W": torch.randn(units, wide) * scale, "b": torch.zeros(wide)}
    return made | {name: torch.zeros(units) for name in ("p_i", "p_f", "p_o")}


class CompiledLoop(nn.Module):
    """What one writes without a library: the product with x first, then a loop over a compiled step."""

    def __init__(self, cell: str, inputs: int, units: int):
        super().__init__()
        self.w = nn.ParameterDict(weights_of(cell, inputs, units))
        self.units, self.step = units, torch.compile(by_hand(cell, torch, sigmoid), dynamic=False)

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        w, zero = dict(self.w), x.new_zeros(x.shape[1], self.units)
        state, outputs = (zero, zero), []
        for px in x @ w["U"] + w["b"]:
            state = self.step(px, state, w)
            outputs.append(state[0])
        return torch.stack(outputs), None


def jax_job(cell: str, x: Tensor, units: int) -> Job:
    import jax  # pyrefly: ignore
    import jax.numpy as jnp  # pyrefly: ignore

    step = by_hand(cell, jnp, jax.nn.sigmoid)
    w = {name: jnp.asarray(value.numpy()) for name, value in weights_of(cell, x.shape[2], units).items()}
    data, zero = jnp.asarray(x.numpy()), jnp.zeros((x.shape[1], units))

    def loss(w: Any) -> Any:
        def body(state: Any, px: Any) -> Any:
            state = step(px, state, w)
            return state, state[0]

        return jax.lax.scan(body, (zero, zero), data @ w["U"] + w["b"])[1].sum()

    gradient = jax.jit(jax.grad(loss))
    return lambda: jax.block_until_ready(gradient(w))


# --------------------------------------------------------------------------- contestants


def modules(cell: str, inputs: int, units: int) -> dict[str, nn.Module]:
    ours = {"LSTM": rc.LSTM(inputs, units), "GRU": rc.GRU(inputs, units, reset_after=True)}
    ours |= {"peephole LSTM": rc.VanillaLSTM(inputs, units), "own cell": rc.Recurrent(Own, inputs, units)}
    found: dict[str, nn.Module] = {"recurra": ours[cell]}
    if cell in ("LSTM", "GRU"):
        found["torch.nn"] = getattr(nn, cell)(inputs, units)
    if cell == "peephole LSTM" and importlib.util.find_spec("torchrecurrent"):
        import torchrecurrent

        found["torchrecurrent"] = torchrecurrent.PeepholeLSTM(inputs, units)
    return found | {"compiled step in a loop": CompiledLoop(cell, inputs, units)}


def training(module: nn.Module, x: Tensor) -> Job:
    def run() -> None:
        module.zero_grad(set_to_none=True)
        module(x)[0].sum().backward()

    return run


def measure(size: tuple[int, ...], rounds: int) -> dict[str, dict[str, float]]:
    """cell → contestant → milliseconds of a forward and backward pass."""
    steps, batch, inputs, units = size
    x = torch.randn(steps, batch, inputs)
    jobs: dict[Any, Job] = {}
    for cell in CELLS:
        jobs |= {(cell, name): training(module, x) for name, module in modules(cell, inputs, units).items()}
        if importlib.util.find_spec("jax"):
            jobs[cell, "jax.lax.scan"] = jax_job(cell, x, units)
    found: dict[str, dict[str, float]] = {cell: {} for cell in CELLS}
    for (cell, name), seconds in interleaved(jobs, rounds, time.process_time).items():  # pyrefly: ignore
        found[cell][name] = 1000 * seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--draw", action="store_true", help="only the picture, of the committed numbers")
    given = parser.parse_args()
    if given.draw:
        draw()
    elif given.device == "cuda":
        from benchmarks import peers_gpu

        peers_gpu.main(given.rounds)
    else:
        measure_all(given.rounds)
        draw()


def draw() -> None:
    about = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))
    (RESULTS / "peers.svg").write_text(picture(about), encoding="utf-8")


def measure_all(rounds: int) -> None:
    torch.set_num_threads(1)
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    about = {"command": "python -m benchmarks.peers", "when": datetime.now(UTC).isoformat(timespec="seconds")}
    about |= environment("torchrecurrent", "jax") | {"threads": torch.get_num_threads(), "load": os.getloadavg()}
    sizes = []
    for size in SIZES:
        sizes.append({"size": size, "milliseconds": measure(size, rounds)})
        print(size, json.dumps(sizes[-1]["milliseconds"]), flush=True)
    about |= {"rounds": rounds, "sizes": sizes}
    (RESULTS / "peers.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "peers.md").write_text(table(about), encoding="utf-8")


def table(about: dict[str, Any]) -> str:
    threads = f"{about['threads']} thread{'s' if about['threads'] > 1 else ''}"
    lines = ["# Beside what people use instead", ""]
    lines += [f"`{about['command']}`, {about['when'][:10]}, {about['processor']}, {threads}, torch {about['torch']}."]
    lines += [
        "Milliseconds of processor time of a forward and backward pass; smaller is better. The GRU is torch's, which",
        "resets after the product. An empty field: that library has no such cell. `torch.compile` compiles one step,",
        "not the loop.",
        "",
    ]
    for each in about["sizes"]:
        names = [name for name in PEERS if any(name in row for row in each["milliseconds"].values())]
        lines += [
            f"| (T, B, D, H) = {tuple(each['size'])} | " + " | ".join(names) + " |",
            "|---" * (len(names) + 1) + "|",
        ]
        for cell, row in each["milliseconds"].items():
            lines.append(f"| {cell} | " + " | ".join(f"{row[n]:.1f}" if n in row else "" for n in names) + " |")
        lines.append("")
    return "\n".join(lines)


def picture(about: dict[str, Any]) -> str:
    """Times as multiples of recurra's: on a CPU at the first size, and on a card, from the results of speed.py."""
    rows = about["sizes"][0]["milliseconds"]
    names = [name for name in PEERS if any(name in row for row in rows.values())]
    series = {name: [row.get(name, 0.0) / row["recurra"] for row in rows.values()] for name in names}
    title = f"Training time on a CPU, as a multiple of recurra's, (T, B, D, H) = {tuple(about['sizes'][0]['size'])}"
    return one_below_another([bar_chart(title, "×", list(rows), series), picture_of_card()])


ON_CARD = {  # name → the row of recurra in bfloat16, and those of others
    "LSTM": ("lstm", {"cuDNN fp16": "cuDNN LSTM", "cuDNN bf16": "cuDNN LSTM"}),
    "GRU": ("gru(reset_after=True)", {"cuDNN fp16": "cuDNN GRU", "cuDNN bf16": "cuDNN GRU"}),
    "peephole LSTM": ("vanilla_lstm", {"torchrecurrent fp32": "torchrecurrent PeepholeLSTM"}),
    "own cell": ("unseen: four gates, two states", {}),
}


def picture_of_card(size: tuple[int, ...] = (256, 64, 256, 256)) -> str:
    """The same on an H200, from h200.json."""
    about = json.loads((RESULTS / "h200.json").read_text(encoding="utf-8"))
    rows = [row for row in about["rows"] if tuple(row[axis] for axis in "TBDH") == size]
    times = {(row["cell"], row["dtype"]): row["train_ms"] for row in rows}
    others = ("cuDNN fp16", "cuDNN bf16", "torchrecurrent fp32")
    series = {"recurra bf16": [1.0] * len(ON_CARD)}
    for other in others:
        series[other] = [
            times[peers[other], other.split()[-1]] / times[ours, "bf16"] if other in peers else 0.0
            for ours, peers in ON_CARD.values()
        ]
    series |= loops_on_card()
    title = f"On an H200, the same at (T, B, D, H) = {size}; logarithmic"
    return bar_chart(title, "×", list(ON_CARD), series, log=True)


def loops_on_card() -> dict[str, list[float]]:
    """Contestant → times as multiples of recurra's in the same run, where it has been measured."""
    path = RESULTS / "peers_h200.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["milliseconds"] if path.is_file() else {}
    names = [name for name in PEERS[1:] if any(name in row for row in rows.values())]
    return {
        n: [rows.get(cell, {}).get(n, 0.0) / rows.get(cell, {}).get("recurra", 1.0) for cell in ON_CARD] for n in names
    }


if __name__ == "__main__":
    main()
