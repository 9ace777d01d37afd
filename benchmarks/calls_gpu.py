"""Ordinary calls on a CUDA device, as people make them, beside cuDNN: what `speed.py --device cuda --part calls` does.

Every row is one kind of call: its time by the clock forward and for a training step, and that of a peer in the same
run, timed in turn. Kernels are compiled first, in many processes at once. A row has a limit: the ratio to its peer, or
milliseconds, that recurra is meant to stay below. The table goes to results/h200_calls.json and to h200_calls.md.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from ahead import shares, side_by_side  # pyrefly: ignore
from calls_table import is_met, line, table  # pyrefly: ignore
from environment import environment  # pyrefly: ignore
from torch import Tensor, nn, sigmoid, tanh

import recurra as rc

RESULTS = Path(__file__).parent / "results"
COMMAND = "python benchmarks/speed.py --device cuda --part calls"
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
Job = Callable[[], object]
Pair = tuple[Job, Job | None]  # a forward pass and a training step
Size = tuple[int, int, int, int]  # T, B, D, H


@dataclass
class Row:
    """One kind of call and its peer; times in milliseconds."""

    what: str
    size: Size
    dtype: str
    peer: str
    limit: str  # what recurra is meant to reach
    make: Callable[[Size], tuple[Pair, Pair]]


class NormedLSTM(rc.Cell):
    """An LSTM with a layer norm of the gates' sums inside its step."""

    states = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.o, self.z = (self.affine("x", "h") for _ in range(4))

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, z = (F.layer_norm(gate(x, h), (self.hidden_size,)) for gate in (self.i, self.f, self.o, self.z))
        c = sigmoid(f) * c + sigmoid(i) * tanh(z)
        return sigmoid(o) * tanh(c), c


class Model(nn.Module):
    """Embedding, recurrent layers, linear: a language model."""

    def __init__(self, layer: nn.Module, vocabulary: int, inputs: int, units: int):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(vocabulary, inputs), layer
        self.readout = nn.Linear(units, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.readout(self.layer(self.embedding(tokens))[0])


# ---------------------------------------------------------------------------------------------------- pairs of jobs


def of_layer(layer: nn.Module, x: Tensor, **given: Tensor) -> Pair:
    cotangent = torch.randn_like(layer(x, **given)[0])

    def infer() -> None:
        with torch.no_grad():
            layer(x, **given)

    def train() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x, **given)[0].backward(cotangent)

    return infer, train


def of_model(model: nn.Module, tokens: Tensor, parameters: list[Tensor]) -> Pair:
    """With the loss and a step of SGD."""
    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def infer() -> None:
        with torch.no_grad():
            model(tokens)

    def train() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()

    return infer, train


def layer(name: str, size: Size, dtype: torch.dtype = BF16, **options) -> nn.Module:
    with torch.device("cuda"):
        return rc.layer(name, size[2], size[3], **options).to("cuda", dtype)


def inputs(size: Size, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(size[0], size[1], size[2], device="cuda", dtype=dtype)


def against_cudnn(size: Size) -> tuple[Pair, Pair]:
    peer = nn.LSTM(size[2], size[3]).to("cuda", FP16)
    return of_layer(layer("lstm", size), inputs(size)), of_layer(peer, inputs(size, FP16))


def fp32(tf32: bool) -> Callable[[Size], tuple[Pair, Pair]]:
    def make(size: Size) -> tuple[Pair, Pair]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        peer = nn.LSTM(size[2], size[3]).cuda()
        return of_layer(layer("lstm", size, FP32), inputs(size, FP32)), of_layer(peer, inputs(size, FP32))

    return make


def against_layer(name: str, peer: str = "lstm", other: dict | None = None, **options):
    """A layer beside another one."""

    def make(size: Size) -> tuple[Pair, Pair]:
        return of_layer(layer(name, size, **options), inputs(size)), of_layer(
            layer(peer, size, **(other or {})), inputs(size)
        )

    return make


def modified(*modifiers: Callable[[], nn.Module]):
    def make(size: Size) -> tuple[Pair, Pair]:
        own = layer("lstm", size, modifiers=[m() for m in modifiers])
        return of_layer(own, inputs(size)), of_layer(layer("lstm", size), inputs(size))

    return make


def normed(size: Size) -> tuple[Pair, Pair]:
    with torch.device("cuda"):
        own = rc.Recurrent(NormedLSTM, size[2], size[3]).to("cuda", BF16)
    return of_layer(own, inputs(size)), of_layer(layer("lstm", size), inputs(size))


def with_resets(compiled: bool):
    def make(size: Size) -> tuple[Pair, Pair]:
        plain = layer("gru", size)
        own: nn.Module = torch.compile(plain) if compiled else plain  # pyrefly: ignore
        resets = torch.rand(size[:2], device="cuda") < 0.03
        return of_layer(own, inputs(size), resets=resets), of_layer(plain, inputs(size))

    return make


def ragged(size: Size) -> tuple[Pair, Pair]:
    own = layer("lstm", size)
    lengths = torch.randint(8, size[0] + 1, (size[1],))
    lengths[0] = size[0]
    return of_layer(own, inputs(size), lengths=lengths.cuda()), of_layer(own, inputs(size))


def compiled_model(**options):
    def make(size: Size) -> tuple[Pair, Pair]:
        model = Model(layer("lstm", size, FP32), 1000, size[2], size[3]).cuda()
        tokens = torch.randint(1000, size[:2], device="cuda")
        compiled = torch.compile(model, **options)
        weights = list(model.parameters())
        return of_model(compiled, tokens, weights), of_model(model, tokens, weights)  # pyrefly: ignore

    return make


def language(size: Size) -> tuple[Pair, Pair]:
    """Zaremba's small model: two layers, 10,000 words."""
    pairs = []
    for made in (rc.LSTM, nn.LSTM):
        model = Model(made(size[2], size[3], num_layers=2).cuda(), 10_000, size[2], size[3]).cuda()
        pairs.append(of_model(model, torch.randint(10_000, size[:2], device="cuda"), list(model.parameters())))
    return pairs[0], pairs[1]


def by_graph(size: Size) -> tuple[Pair, Pair]:
    """An ordinary call beside the replay of a graph that someone captured: the difference is the host's share."""
    own, x = layer("lstm", size), inputs(size)
    jobs = of_layer(own, x)
    return jobs, (_captured(jobs[0]), _captured(jobs[1]))


def _captured(job: Job | None) -> Job:
    assert job is not None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            job()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()
    return graph.replay


STEPS = 1000


def streamed(size: Size) -> tuple[Pair, Pair]:
    """A thousand dependent steps, so that milliseconds of the job are microseconds of a step."""
    own, peer = layer("lstm", size, FP32), nn.LSTMCell(size[2], size[3]).cuda()
    x = inputs(size, FP32)[0]

    def steps(step: Callable) -> Job:
        @torch.no_grad()
        def run() -> None:
            state = None
            for _ in range(STEPS):
                state = step(state)

        return run

    def of_peer(state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        return peer(x, state)

    def of_own(state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        return own.step(x, state)[1]  # pyrefly: ignore  (a layer of recurra's)

    return (steps(of_own), None), (steps(of_peer), None)


COMMON = (256, 64, 256, 256)
DELAYS = {"delays": (1, 2, 8)}
ROWS = [
    *(
        Row("LSTM", size, "bf16", "cuDNN LSTM fp16", "1.0", against_cudnn)
        for size in ((35, 64, 256, 256), (16, 256, 128, 128), (100, 32, 64, 128), (8, 1024, 64, 64), COMMON)
    ),
    Row("LSTM", (35, 20, 650, 650), "bf16", "its own CUDA graph", "+0.12/+0.5", by_graph),
    Row("layer.step, 1000 dependent steps", (1, 1, 256, 256), "fp32", "nn.LSTMCell", "40 ms", streamed),
    *(
        Row("layer norm in the step", size, "bf16", "LSTM", limit, normed)
        for size, limit in ((COMMON, "2.0"), ((512, 16, 768, 768), "2.5"))
    ),
    *(
        Row("rc.LayerNorm()", size, "bf16", "LSTM", limit, modified(rc.LayerNorm))
        for size, limit in ((COMMON, "2.0"), ((512, 16, 768, 768), "2.5"))
    ),
    Row("GRU, 3 % resets", (64, 128, 256, 256), "bf16", "no resets", "1.1", with_resets(False)),
    Row("LSTM, lengths 8 to 256", COMMON, "bf16", "all of length 256", "1.1", ragged),
    Row("LSTM, lengths 8 to 256", (256, 4096, 256, 256), "bf16", "all of length 256", "0.7", ragged),
    Row(
        "LSTM, both directions",
        COMMON,
        "bf16",
        "one direction",
        "1.3",
        against_layer("lstm", bidirectional=True),
    ),
    Row("slstm, 16 heads", (256, 16, 1024, 1024), "bf16", "1 head", "0.7", against_layer("slstm", "slstm", heads=16)),
    Row("delay_rnn, delays 1, 2, 8", COMMON, "bf16", "LSTM", "2.0", against_layer("delay_rnn", **DELAYS)),
    Row("LSTM, zoneout", COMMON, "bf16", "LSTM", "1.25", modified(lambda: rc.Zoneout(0.1))),
    Row("LSTM, variational dropout", COMMON, "bf16", "LSTM", "1.25", modified(lambda: rc.VariationalDropout(0.2))),
    Row("LSTM, recurrent dropout", COMMON, "bf16", "LSTM", "1.25", modified(lambda: rc.RecurrentDropout(0.2))),
    Row("LSTM, weight drop", COMMON, "bf16", "LSTM", "1.25", modified(lambda: rc.WeightDrop(0.5))),
    *(
        Row("LSTM" + (", tf32" if tf32 else ""), size, "fp32", "cuDNN LSTM, alike", "1.0", fp32(tf32))
        for size in ((70, 80, 1150, 1150), (35, 20, 1500, 1500), (35, 64, 1500, 1500))
        for tf32 in (False, True)
    ),
    *(
        Row("language model, 2 layers", (steps, 20, 200, 200), "fp32", "nn.LSTM", "0.8", language)
        for steps in (20, 35, 70)
    ),
    # Last, because they take the longest to prepare.
    Row("GRU, 3 % resets, torch.compile", (64, 128, 256, 256), "bf16", "no resets", "1.1", with_resets(True)),
    Row("torch.compile: embedding, LSTM, linear", (64, 32, 256, 256), "fp32", "not compiled", "1.0", compiled_model()),
    Row("torch.compile, dynamic=True", (64, 32, 256, 256), "fp32", "not compiled", "1.0", compiled_model(dynamic=True)),
    Row(
        "torch.compile, reduce-overhead",
        (64, 32, 256, 256),
        "fp32",
        "not compiled",
        "1.0",
        compiled_model(mode="reduce-overhead"),
    ),
]


# ---------------------------------------------------------------------------------------------------- timing


def wall(jobs: list[Job], samples: int = 9) -> list[float]:
    """Median milliseconds of each job, a few calls to a sample, in turn."""
    for job in jobs:
        for _ in range(5):
            job()
    torch.cuda.synchronize()
    counts = [max(1, min(20, int(0.02 / _seconds(job, 1)))) for job in jobs]
    found: list[list[float]] = [[] for _ in jobs]
    for _ in range(samples):
        for times, job, count in zip(found, jobs, counts, strict=True):
            times.append(1e3 * _seconds(job, count) / count)
    return [statistics.median(times) for times in found]


def _seconds(job: Job, count: int) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        job()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(pairs: tuple[Pair, Pair]) -> list[float | None]:
    """Milliseconds forward and of a training step, then those of the peer."""
    own, peer = pairs
    infer = wall([own[0], peer[0]])
    train = wall([own[1], peer[1]]) if own[1] is not None and peer[1] is not None else [None, None]
    return [infer[0], train[0], infer[1], train[1]]


def made(row: Row) -> tuple[Pair, Pair]:
    """The row's jobs, without what torch compiled for the rows before: it compiles a model anew only so many times."""
    torch.manual_seed(0)
    torch.compiler.reset()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return row.make(row.size)


def report(row: Row, runs: int) -> dict:
    """The row of the table: medians of some runs."""
    found = {"what": row.what, **dict(zip("TBDH", row.size, strict=True)), "dtype": row.dtype, "limit": row.limit}
    try:
        pairs = made(row)
        taken = [measure(pairs) for _ in range(runs)]
    except Exception as error:  # one row must not end the run
        return found | {"error": repr(error)[:300], "met": False}
    infer, train, peer_infer, peer_train = (
        None if column[0] is None else statistics.median(column) for column in zip(*taken, strict=True)
    )
    found |= {"infer_ms": infer, "train_ms": train, "peer": row.peer}
    met = is_met(row.limit, [infer, peer_infer], [train, peer_train])
    return found | {"peer_infer_ms": peer_infer, "peer_train_ms": peer_train, "met": met}


# ---------------------------------------------------------------------------------------------------- first use


FIRST_USE = """
import time, torch, triton.experimental.gluon, recurra as rc
from triton.runtime.cache import triton_key
triton_key()
layer = rc.LSTM(1024, 1024).to("cuda", torch.bfloat16)
x = torch.randn(64, 32, 1024, device="cuda", dtype=torch.bfloat16)
other = torch.nn.Linear(1024, 1024).to("cuda", torch.bfloat16)
other(x).sum().backward(); torch.cuda.synchronize(); start = time.perf_counter()
layer(x)[0].sum().backward(); torch.cuda.synchronize()
print(time.perf_counter() - start)
"""


def first_use() -> list[dict]:
    """Seconds of the first training step of an LSTM of 1024 units: with empty caches, and in a second process. Before
    come imports, what Triton reads once in a process whatever the kernel, and a step of nn.Linear, for which torch
    loads its own kernels."""
    folder = tempfile.mkdtemp()
    env = os.environ | {"TRITON_CACHE_DIR": f"{folder}/triton", "RECURRA_CACHE": f"{folder}/recurra"}
    rows = []
    for what, limit in (("first use, seconds", 5.0), ("first use in a second process, seconds", 0.3)):
        ran = subprocess.run([sys.executable, "-c", FIRST_USE], env=env, capture_output=True, text=True, check=True)
        took = float(ran.stdout.split()[-1])
        rows.append({"what": what, "T": 64, "B": 32, "D": 1024, "H": 1024, "dtype": "bf16", "seconds": took})
        rows[-1] |= {"limit": f"{limit} s", "met": took <= limit}
    shutil.rmtree(folder)
    return rows


# ---------------------------------------------------------------------------------------------------- the run


def compile_ahead(wanted: list[int]) -> None:
    command = [sys.executable, "-W", "ignore", __file__, "--compile"]
    side_by_side([*command, *share] for share in shares([str(number) for number in wanted]))


def compile_some(wanted: list[int]) -> None:
    for number in wanted:
        for pair in made(ROWS[number]):
            for job in pair:
                if job is not None:
                    job()
    torch.cuda.synchronize()


def main(chosen: str = "", runs: int = 3) -> None:
    """Measure the rows whose description contains `chosen`. Without a choice, the table is written after every row, so
    that a run that is stopped has a result."""
    wanted = [i for i, row in enumerate(ROWS) if chosen in row.what]
    compile_ahead(wanted)
    found: list[dict] = []

    def add(rows: list[dict]) -> None:
        found.extend(rows)
        print("\n".join(map(line, rows)), flush=True)
        if not chosen:
            save(found, runs)

    for number in wanted:
        add([report(ROWS[number], runs)])
    if not chosen:
        add(first_use())


def save(rows: list[dict], runs: int) -> None:
    about = {
        "command": f"{COMMAND} --runs {runs}",
        **environment(),
        "cudnn": torch.backends.cudnn.version(),
        "runs": runs,
    }
    for name, text in (("json", json.dumps(about | {"rows": rows}, indent=1) + "\n"), ("md", table(about, rows))):
        beside = RESULTS / f"h200_calls.{name}.new"
        beside.write_text(text)
        beside.replace(RESULTS / f"h200_calls.{name}")


if __name__ == "__main__":
    if "--compile" in sys.argv:
        compile_some([*map(int, sys.argv[2:])])
    else:
        main(sys.argv[1], 1) if len(sys.argv) > 1 else main()
