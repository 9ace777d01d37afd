"""A page for every registered cell, an index for every family, and a table of all cells, from the registry."""

import functools
import inspect
import math
import textwrap
from typing import Any

import torch

import recurra as rc
from recurra.cell import Cell
from recurra.cells.options import meaning
from recurra.cli.cell_traits import is_scan
from recurra.inspect.mathml import cell_mathml

from . import identities, initial_values, learning_results, sizes, speed_results
from .docstrings import summary
from .drawings import framed

STEPS = 60  # of the gradient's way back
FAMILIES = {
    "plain": "Plain recurrence",
    "timescales": "Several time scales",
    "unitary": "Orthogonal and unitary",
    "lstm": "LSTM",
    "greff": "Greff's LSTM variants",
    "gru": "GRU",
    "descendants": "Later gated and linear cells",
    "gated_linear": "Linear recurrences with gates",
    "state_space": "State spaces",
    "matrix": "Matrix memories",
    "minimal": "Fewer parts than a GRU",
    "typed": "Strongly typed",
    "multiplicative": "Multiplicative",
    "bistable": "Bistable",
    "memory": "LSTMs with another memory",
    "deep": "Deep within a step",
    "continuous": "Continuous time",
    "oscillators": "Oscillators",
    "spiking": "Spiking neurons",
    "neuroscience": "Computational neuroscience",
    "reconstruction": "Reconstruction of dynamics",
    "hydrology": "Hydrology",
    "reinforcement": "World models",
    "convolutional": "Convolutional",
}


def pages() -> dict[str, str]:
    """Path below `generated` → Markdown."""
    names: dict[type[Cell], list[str]] = {}
    for name, kind in rc.registry().items():
        if kind.__module__.startswith("recurra.cells."):
            names.setdefault(kind, []).append(name)
    families: dict[str, list[tuple[str, type[Cell]]]] = {}
    for kind, known in sorted(names.items(), key=lambda pair: _order(pair[0])):
        families.setdefault(kind.__module__.rpartition(".")[2], []).append((known[0], kind))
    found = {f"cells/{known[0]}.md": _cell(known, kind) for kind, known in names.items()}
    found |= {f"cells/family_{family}.md": _family(family, cells) for family, cells in families.items()}
    return found | {"cells/index.md": _index(families)}


def _order(kind: type[Cell]) -> tuple[int, str]:
    """The families above in their order, then the others by name."""
    family = kind.__module__.rpartition(".")[2]
    return (list(FAMILIES).index(family) if family in FAMILIES else len(FAMILIES)), family


def title_of(family: str) -> str:
    return FAMILIES.get(family, family.replace("_", " ").capitalize())


def _cell(names: list[str], kind: type[Cell]) -> str:
    cell = _fresh(kind, 0)
    aliases = f"Also registered as {', '.join(f'`{n}`' for n in names[1:])}.\n" if names[1:] else ""
    source = textwrap.dedent(inspect.getsource(kind.step))
    parts = [
        f"# {names[0]}\n\n{textwrap.dedent(inspect.getdoc(kind) or '')}\n\n{_paper(kind)}{aliases}",
        f"```python\nlayer = rc.layer({names[0]!r}, input_size, hidden_size)\n```",
        f"## Equations\n\nPrinted from `step`.\n\n```{{raw}} html\n{cell_mathml(cell)}\n```",
        f"## One step\n\n```{{raw}} html\n{framed(rc.diagram(cell))}\n```",
        f"## Parameters and their initial values\n\n{_parameters(cell)}",
        _options(kind),
        f"## Gradients through time\n\n{_gradient_flow(names[0])}",
        identities.section(names[0]),
        learning_results.section(names[0]),
        speed_results.section(names[0]),
        f"## Code\n\n```python\n{source}```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _fresh(kind: type[Cell], seed: int) -> Cell:
    torch.manual_seed(seed)
    return kind(sizes.INPUTS, sizes.UNITS)


def _paper(kind: type[Cell]) -> str:
    paper, year = getattr(kind, "paper", ""), getattr(kind, "year", "")
    return f"*{paper}* ({year}).\n\n" if paper else ""


def _parameters(cell: Cell) -> str:
    again = dict(_fresh(type(cell), 1).named_parameters())
    rows = [
        f"| `{name}` | {sizes.shape(p.shape)} | {initial_values.describe(p, again[name])} |"
        for name, p in cell.named_parameters()
    ]
    carried = [state for state in cell.carried if state.name in cell.states]
    states = ", ".join(f"`{s.name}` {sizes.shape(s.axes) if s.axes else ''}".strip() for s in carried)
    count = sum(p.numel() for p in cell.parameters())
    head = f"States: {states}. With D = {sizes.INPUTS} inputs and H = {sizes.UNITS} units it has {count:,} parameters."
    return head + ("\n\n| parameter | shape | starts as |\n|---|---|---|\n" + "\n".join(rows) if rows else "")


def _options(kind: type[Cell]) -> str:
    given = list(inspect.signature(kind.__init__).parameters.values())[3:]
    rows = [
        f"| `{p.name}` | `{_default(p.default)}` | {meaning(kind, p.name)} |"
        for p in given
        if p.kind is not p.VAR_KEYWORD
    ]
    return "## Options\n\n| option | default | meaning |\n|---|---|---|\n" + "\n".join(rows) if rows else ""


def _default(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else repr(value)


@functools.cache
def gradient_norms(name: str) -> list[float]:
    """‖∂ h_T / ∂ x_t‖ for every lag T - t, as a share of the first, of a freshly initialised layer."""
    torch.manual_seed(0)
    layer = rc.layer(name, sizes.INPUTS, sizes.UNITS)
    x = torch.randn(STEPS, 8, sizes.INPUTS, requires_grad=True)
    y, _ = layer(x)
    (y[-1] * torch.randn_like(y[-1])).sum().backward()
    norms = x.grad.norm(dim=-1).mean(-1).flip(0)  # pyrefly: ignore  # (T,), the last step first
    return (norms / norms[0].clamp(min=1e-30)).clamp(min=1e-12).tolist()


def _gradient_flow(name: str) -> str:
    width, height, left, bottom, decades = 560, 170, 46, 34, 12

    def at(lag: int, value: float) -> tuple[float, float]:
        down = min(max(-math.log10(value), -1.0), decades)
        return left + lag * (width - left - 10) / (STEPS - 1), 18 + down * (height - 18 - bottom) / decades

    def line(cell: str, kind: str) -> str:
        points = " ".join("{:.1f},{:.1f}".format(*at(lag, value)) for lag, value in enumerate(gradient_norms(cell)))
        return f'<polyline class="{kind}" points="{points}"/>'

    label = '<line x1="{0}" x2="{1}" y1="{2:.1f}" y2="{2:.1f}"/><text x="{3}" y="{4:.1f}" text-anchor="end">{5}</text>'
    ticks = "".join(
        label.format(left, width - 10, at(0, 10.0**-k)[1], left - 6, at(0, 10.0**-k)[1] + 4, power)
        for k, power in ((0, "1"), (4, "10⁻⁴"), (8, "10⁻⁸"), (12, "10⁻¹²"))
    )
    lags = "".join(
        f'<text x="{at(lag, 1)[0]:.1f}" y="{height - 18}" text-anchor="middle">{lag}</text>' for lag in (0, 20, 40)
    )
    beside = "" if name == "lstm" else " Dashed: an LSTM."
    return (
        "How much of the gradient of the last output reaches the input of some steps ago, as a share of what the last "
        f"input gets: a fresh layer of {sizes.UNITS} units, random input.{beside}\n\n"
        f'```{{raw}} html\n<svg class="flow" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Gradient norm over lags of {name}">{ticks}{"" if name == "lstm" else line("lstm", "lstm")}'
        f'{line(name, "cell")}{lags}<text x="{width - 10}" y="{height - 18}" text-anchor="end">{STEPS - 1}</text>'
        f'<text x="{(width + left) / 2}" y="{height - 4}" text-anchor="middle">steps ago</text></svg>\n```'
    )


def _family(family: str, cells: list[tuple[str, type[Cell]]]) -> str:
    module: Any = inspect.getmodule(cells[0][1])
    listed = "\n".join(f"{name} <{name}>" for name, _ in cells)
    about = inspect.getdoc(module) or ""
    return f"# {title_of(family)}\n\n{about}\n\n{_table(cells)}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _index(families: dict[str, list[tuple[str, type[Cell]]]]) -> str:
    everything = [pair for cells in families.values() for pair in cells]
    listed = "\n".join(f"{title_of(family)} <family_{family}>" for family in families)
    return (
        f"# Cells\n\n{len(everything)} cells, each with its paper's equations and initialisation. Click on the head of "
        "a column to sort by it.\n\n"
        f"- *Parameters per unit*: of a layer with {sizes.INPUTS} inputs and {sizes.UNITS} units.\n"
        "- *Products per step*: matrix products, which are most of the arithmetic.\n"
        "- *Scan*: the new state is linear in the old one, so that all steps can be computed together. *Loop*: each "
        "step waits for the one before.\n"
        f"- *LSTM = 1*: training time as a multiple of an LSTM's, on one CPU thread{_sizes_of_speed()}."
        f"\n\n{_table(everything)}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )


def _table(cells: list[tuple[str, type[Cell]]]) -> str:
    per_unit = "parameters per unit"
    heads = (
        "cell",
        "what it is",
        "states",
        per_unit,
        "products per step",
        "scan or loop",
        *speeds(),
        "year",
    )
    rows = [f"| {' | '.join(_columns(name, kind))} |" for name, kind in cells]
    table = "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])
    return f":::{{container}} sortable\n\n{table}\n:::"


def _sizes_of_speed() -> str:
    about = speed_results.every_cell_on_the_card()
    if not about["cells"]:
        return ""
    return f" and on an H200 at (T, B, D, H) = {tuple(about['size'])}"


def speeds() -> list[str]:
    """Columns of measured speed. That of the GPU is left out until a cell has been measured there."""
    columns = ["CPU, LSTM = 1"]
    return [*columns, "H200, LSTM = 1"] if speed_results.every_cell_on_the_card()["cells"] else columns


def _columns(name: str, kind: type[Cell]) -> list[str]:
    cell = kind(sizes.INPUTS, sizes.UNITS)
    per_unit = sum(p.numel() for p in cell.parameters()) / sizes.UNITS
    products, speed = speed_results.products(name), speed_results.beside_lstm(name)
    scan = "scan" if is_scan(kind) else "loop"
    times = [speed, speed_results.beside_lstm_on_the_card(name)][: len(speeds())]
    measured = (
        "" if products is None else str(products),
        scan,
        *("" if t is None else speed_results.in_words(t) for t in times),
    )
    return [
        f"[{name}]({name}.md)",
        summary(kind),
        str(len(cell.states)),
        f"{per_unit:.0f}",
        *measured,
        str(getattr(kind, "year", "")),
    ]
