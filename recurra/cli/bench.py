"""`recurra bench`: how fast a cell runs here, beside torch.nn's."""

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
    cell: Annotated[str, typer.Argument(metavar="CELL", help="`recurra cells` lists them.")] = "lstm",
    steps: Annotated[int, typer.Option(min=1, help="Steps a sequence.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Sequences at a time.")] = 32,
    input_size: Annotated[int, typer.Option(min=1, help="Numbers a step.")] = 64,
    hidden_size: Annotated[int, typer.Option(min=1, help="Units.")] = 128,
    seconds: Annotated[float, typer.Option(min=0.1, help="To measure for.")] = 8.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Json = False,
) -> None:
    """Time a cell beside torch.nn.LSTM, torch.nn.GRU and a plain loop, in turns.

    The first run of a cell compiles it, which is not timed.
    """
    from recurra.cells import find
    from recurra.cli import printing
    from recurra.cli.devices import checked

    find(cell)
    device = "cpu" if checked(device) == "auto" else device
    sizes = Sizes(steps, batch, input_size, hidden_size)
    found = measured(cell, sizes, seconds, device)
    if json:
        printing.as_json({"cell": cell, "device": device, "sizes": vars(sizes), "milliseconds": found})
    else:
        _print(cell, sizes, device, found)


def measured(cell: str, sizes: Sizes, seconds: float, device: str) -> dict[str, dict[str, float]]:
    """Medians in milliseconds, contestant by contestant: reading alone, and reading with gradients."""
    jobs = _jobs(cell, sizes, device)
    for job in jobs.values():
        job()  # compiles, and warms up
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
        f"{sizes.steps} steps, {sizes.batch} sequences, {sizes.inputs} inputs, {sizes.hidden} units, on {device}\n"
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
            for text in (f"{row[what]:.2f} ms", _times(row[what] / first[what]))
        ]
        table.add_row(f"[bold]{name}[/]" if row is first else name, *cells)
    console.print(table)


def _times(ratio: float) -> str:
    return "" if ratio == 1.0 else f"{ratio:.2f} ×"
