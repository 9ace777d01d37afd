"""Speed on a CUDA device against cuDNN, in one run: what `benchmarks/speed.py --device cuda` does.

Kernels are compiled first, in many processes at once. Then each contestant's forward pass and training step are timed
in turn, a few calls to a sample so that a host's launches overlap as they do in use; medians of the samples count.
"""

import importlib.util
import json
import statistics
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from ahead import shares, side_by_side  # pyrefly: ignore
from environment import environment  # pyrefly: ignore
from torch import Tensor, nn, sigmoid, tanh

import recurra as rc

SIZES = (
    (512, 16, 768, 768),
    (256, 64, 256, 256),
    (1024, 8, 512, 512),
    (128, 128, 1024, 1024),
    (512, 64, 128, 128),
    (1024, 1, 256, 256),
    (64, 256, 2048, 2048),
    (32, 64, 4096, 4096),
)
LARGE = SIZES[6:]  # weights that no chip holds: some cells only
GRU = "gru(reset_after=True)"  # as cuDNN has it
CELLS = (
    "lstm",
    "vanilla_lstm",
    "rnn",
    "leaky_rnn",
    "full_gate_lstm",
    GRU,
    "gru",
    "mgu",
    "projection_lstm",
    "unseen: four gates, two states",
    "unseen: two chained products",
)
PEERS = {"cuDNN LSTM": nn.LSTM, "cuDNN GRU": nn.GRU}
SLOW = "torchrecurrent PeepholeLSTM"  # where it is installed: seconds a call, so at the first two sizes only
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
ALSO = {"fp16": ("lstm", GRU, "gru"), "fp32": ("lstm", GRU), "tf32": ("lstm", GRU)}  # beside bf16
RESULTS = Path(__file__).parent / "results" / "h200.json"


class FourGates(rc.Cell):
    """A cell that is in no zoo: two memories that trade places with each other through four gates."""

    states = ("h", "a", "b")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.j, self.f, self.o = (self.affine("x", "h") for _ in range(4))

    def step(self, x: Tensor, h: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        i, j, f = sigmoid(self.i(x, h)), tanh(self.j(x, h)), sigmoid(self.f(x, h))
        new = f * a + i * j
        b = b + f * (a - b)
        return sigmoid(self.o(x, h)) * tanh(new - 0.5 * b), new, b


class TwoProducts(rc.Cell):
    """Another: a product of what a product gave."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.b = self.affine("x", "h"), self.affine(hidden_size, "x")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        gate = sigmoid(self.a(x, h))
        return h + gate * (tanh(self.b(gate * h, x)) - h)


def build(name: str, inputs: int, units: int) -> nn.Module:
    if name in PEERS:
        return PEERS[name](inputs, units)
    if name == SLOW:
        return importlib.import_module("torchrecurrent").PeepholeLSTM(inputs, units)
    if name.startswith("unseen"):
        return rc.Recurrent(FourGates if "four" in name else TwoProducts, inputs, units)
    plain, _, options = name.partition("(")
    return rc.layer(plain, inputs, units, **({"reset_after": True} if options else {}))


def jobs(name: str, dtype: str, size: tuple[int, ...]) -> tuple[Callable[[], object], Callable[[], object]]:
    """A forward pass and a training step."""
    steps, batch, inputs, units = size
    with torch.device("cuda"):  # where large orthogonal matrices are drawn in no time
        module = build(name, inputs, units).to("cuda", DTYPES[dtype])
    return jobs_of(module, torch.randn(steps, batch, inputs, device="cuda", dtype=DTYPES[dtype]))


def jobs_of(module: nn.Module, x: Tensor) -> tuple[Callable[[], object], Callable[[], object]]:
    cotangent = torch.randn_like(module(x)[0])

    def infer() -> None:
        with torch.no_grad():
            module(x)

    def train() -> None:
        module.zero_grad(set_to_none=True)
        module(x)[0].backward(cotangent)

    return infer, train


def milliseconds(job: Callable[[], object], samples: int = 7, calls: int = 4) -> float:
    job()
    job()
    found = []
    for _ in range(samples):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            job()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / calls)
    return statistics.median(found)


def memory(job: Callable[[], object]) -> int:
    """Bytes a training step holds at its most, beyond what lies there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    job()
    return torch.cuda.max_memory_allocated() - before


def contestants(size: tuple[int, ...]) -> list[str]:
    slow = [SLOW] if importlib.util.find_spec("torchrecurrent") and size in SIZES[:2] else []
    return [*PEERS, *slow, *cells_at(size)]


def cells_at(size: tuple[int, ...]) -> tuple[str, ...]:
    return ("lstm", "gru") if size in LARGE else CELLS


def dtypes_of(name: str) -> list[str]:
    if name == SLOW:
        return ["fp32"]
    return list(DTYPES) if name in PEERS else ["bf16", *(dtype for dtype, cells in ALSO.items() if name in cells)]


def short_products(dtype: str) -> None:
    """Whether products of 32-bit numbers may look at eleven bits of them."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dtype == "tf32"


def row_of(name: str, dtype: str, size: tuple[int, ...]) -> dict:
    short_products(dtype)
    infer, train = jobs(name, dtype, size)
    few = {"samples": 3, "calls": 1 if name == SLOW else 2} if name not in CELLS and dtype != "fp16" else {}
    row: dict = {"cell": name, "dtype": dtype, **dict(zip("TBDH", size, strict=True))}
    row |= {"forward_ms": milliseconds(infer, **few), "train_ms": milliseconds(train, **few)}
    return row | {"train_bytes": memory(train)}


def rows(size: tuple[int, ...]) -> list[dict]:
    found: list[dict] = []
    for name in contestants(size):
        for dtype in dtypes_of(name):
            try:
                found.append(row_of(name, dtype, size))
            except Exception as error:  # one that the card refuses; the others are timed all the same
                print(f"  {name} {dtype}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                torch.cuda.synchronize()
    best = next(r for r in found if r["cell"] == "cuDNN LSTM" and r["dtype"] == "fp16")
    for row in found:
        row["forward / cuDNN LSTM fp16"] = row["forward_ms"] / best["forward_ms"]
        row["train / cuDNN LSTM fp16"] = row["train_ms"] / best["train_ms"]
    return found


def compile_ahead() -> None:
    wanted = [f"{i}|{name}|{d}" for i, size in enumerate(SIZES) for name in cells_at(size) for d in dtypes_of(name)]
    command = [sys.executable, "-W", "ignore", __file__, "--compile"]
    side_by_side([*command, *share] for share in shares(wanted))


def compile_some(wanted: list[str]) -> None:
    for text in wanted:
        number, name, dtype = text.split("|")
        steps, *rest = SIZES[int(number)]
        short_products(dtype)
        for job in jobs(name, dtype, (min(steps, 2), *rest)):
            job()
    torch.cuda.synchronize()


def show(row: dict) -> str:
    return (
        f"  {row['cell']:32}{row['dtype']:6}{row['forward_ms']:9.3f} /{row['train_ms']:8.3f} ms"
        f"   of cuDNN's fp16 LSTM {row['forward / cuDNN LSTM fp16']:5.2f} / {row['train / cuDNN LSTM fp16']:5.2f}"
        f"   {row['train_bytes'] / 2**20:8.0f} MiB"
    )


def main() -> None:
    compile_ahead()
    table: list[dict] = []
    for size in SIZES:
        print(f"\n(T, B, D, H) = {size}", flush=True)
        table += (found := rows(size))
        print("\n".join(map(show, found)), flush=True)
        save(table)


def save(table: list[dict]) -> None:
    about = {
        "command": "python benchmarks/speed.py --device cuda",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment(),
        "cudnn": torch.backends.cudnn.version(),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(about | {"rows": table}, indent=1))


if __name__ == "__main__":
    compile_some(sys.argv[2:]) if "--compile" in sys.argv else main()
