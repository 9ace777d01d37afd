"""`recurra bench`: time a cell against torch.nn layers."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import typer

from recurra.cli.options import Json


@dataclass(frozen=True)
class Sizes:
    steps: int
    batch: int
    inputs: int
    hidden: int


def bench(
    cell: Annotated[str, typer.Argument(metavar="CELL", help="Cell; see `recurra cells`.")] = "lstm",
    steps: Annotated[int, typer.Option(min=1, help="Sequence length.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Batch size.")] = 32,
    input_size: Annotated[int, typer.Option(min=1, help="Input size.")] = 64,
    hidden_size: Annotated[int, typer.Option(min=1, help="Hidden size.")] = 128,
    seconds: Annotated[float, typer.Option(min=0.1, help="Total measuring time.")] = 8.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Json = False,
) -> None:
    """Time a cell against torch.nn.LSTM, torch.nn.GRU and a plain Python loop.

    Compilation, at the first run of a cell, is not timed.
    """
    from recurra.cells import find
    from recurra.cli import printing
    from recurra.cli.devices import check_device

    find(cell)
    device = "cpu" if check_device(device) == "auto" else device
    sizes = Sizes(steps, batch, input_size, hidden_size)
    found = measure(cell, sizes, seconds, device)
    if json:
        printing.print_json({"cell": cell, "device": device, "sizes": vars(sizes), "milliseconds": found})
    else:
        _print(cell, sizes, device, found)


def measure(cell: str, sizes: Sizes, seconds: float, device: str) -> dict[str, dict[str, float]]:
    """Median milliseconds: layer → {"forward": …, "training": …}. The layers take turns."""
    jobs = _jobs(cell, sizes, device)
    for job in jobs.values():
        job()  # compile and warm up
    times: dict[tuple[str, str], list[float]] = {key: [] for key in jobs}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or not all(times.values()):
        for key, job in jobs.items():
            start = time.perf_counter()
            job()
            times[key].append(time.perf_counter() - start)
    found: dict[str, dict[str, float]] = {}
    for (name, what), taken in times.items():
        found.setdefault(name, {})[what] = 1e3 * median(taken)
    return found


def _jobs(cell: str, sizes: Sizes, device: str) -> dict[tuple[str, str], Callable[[], None]]:
    import torch

    import recurra as rc

    x = torch.randn(sizes.steps, sizes.batch, sizes.inputs, device=device)
    layers = {
        f"recurra {cell}": rc.layer(cell, sizes.inputs, sizes.hidden),
        "torch.nn.LSTM": torch.nn.LSTM(sizes.inputs, sizes.hidden),
        "torch.nn.GRU": torch.nn.GRU(sizes.inputs, sizes.hidden),
        f"{cell}, plain loop": rc.layer(cell, sizes.inputs, sizes.hidden),
    }
    jobs: dict[tuple[str, str], Callable[[], None]] = {}
    for name, layer in layers.items():
        backend = "reference" if name.endswith("plain loop") else "auto"
        layer.to(device)
        jobs[name, "forward"] = _job(layer, x, backend, train=False)
        jobs[name, "training"] = _job(layer, x, backend, train=True)
    return jobs


def _job(layer: Any, x: Any, backend: str, train: bool) -> Callable[[], None]:
    import torch

    from recurra import set_backend

    def run() -> None:
        with set_backend(backend), torch.set_grad_enabled(train):
            y = layer(x)[0]
            if train:
                y.sum().backward()
                layer.zero_grad(set_to_none=True)
            if x.is_cuda:
                torch.cuda.synchronize()

    return run


def _print(cell: str, sizes: Sizes, device: str, found: dict[str, dict[str, float]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(
        f"length {sizes.steps}, batch {sizes.batch}, input {sizes.inputs}, hidden {sizes.hidden}, on {device}\n"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for heading in ("forward", "", "training", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    first = found[f"recurra {cell}"]
    for name, row in found.items():
        cells = [
            text
            for what in ("forward", "training")
            for text in (f"{row[what]:.2f} ms", _format_ratio(row[what] / first[what]))
        ]
        table.add_row(f"[bold]{name}[/]" if row is first else name, *cells)
    console.print(table)


def _format_ratio(ratio: float) -> str:
    return "" if ratio == 1.0 else f"{ratio:.2f} ×"
