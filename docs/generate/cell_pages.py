"""A page for every registered cell, an index for every family, and a table of all cells, from the registry."""

import inspect
import textwrap
from typing import Any

import torch

import recurra as rc
from recurra.cell import Cell
from recurra.cli.cell_traits import is_scan
from recurra.inspect.mathml import cell_mathml

from . import identities, learning_results, sizes, speed_results

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
    cell = kind(sizes.INPUTS, sizes.UNITS)
    aliases = f"Also registered as {', '.join(f'`{n}`' for n in names[1:])}.\n" if names[1:] else ""
    source = textwrap.dedent(inspect.getsource(kind.step))
    parts = [
        f"# {names[0]}\n\n{textwrap.dedent(inspect.getdoc(kind) or '')}\n\n{_paper(kind)}{aliases}",
        f"```python\nlayer = rc.layer({names[0]!r}, input_size, hidden_size)\n```",
        f"## Equations\n\nPrinted from `step`.\n\n```{{raw}} html\n{cell_mathml(cell)}\n```",
        f'## One step\n\n```{{raw}} html\n<div class="diagram">{rc.diagram(cell)}</div>\n```',
        f"## Parameters\n\n{_parameters(cell)}",
        _options(kind),
        f"## Gradients through time\n\n{_gradient_flow(names[0])}",
        identities.section(names[0]),
        learning_results.section(names[0]),
        speed_results.section(names[0]),
        f"## Code\n\n```python\n{source}```",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _paper(kind: type[Cell]) -> str:
    paper, year = getattr(kind, "paper", ""), getattr(kind, "year", "")
    return f"*{paper}* ({year}).\n\n" if paper else ""


def _parameters(cell: Cell) -> str:
    rows = [f"| `{name}` | {sizes.shape(p.shape)} |" for name, p in cell.named_parameters()]
    carried = [state for state in cell.carried if state.name in cell.states]
    states = ", ".join(f"`{s.name}` {sizes.shape(s.axes) if s.axes else ''}".strip() for s in carried)
    count = sum(p.numel() for p in cell.parameters())
    head = f"States: {states}. With D = {sizes.INPUTS} inputs and H = {sizes.UNITS} units it has {count:,} parameters."
    return head + ("\n\n| parameter | shape |\n|---|---|\n" + "\n".join(rows) if rows else "")


def _options(kind: type[Cell]) -> str:
    given = list(inspect.signature(kind.__init__).parameters.values())[3:]
    rows = [f"| `{p.name}` | `{p.default!r}` |" for p in given if p.kind is not p.VAR_KEYWORD]
    return "## Options\n\n| option | default |\n|---|---|\n" + "\n".join(rows) if rows else ""


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
    norms = gradient_norms(name)
    width, height, decades = 560, 140, 12
    at = lambda lag, value: (  # noqa: E731
        40 + lag * (width - 50) / (STEPS - 1),
        10 + min(max(-torch.tensor(value).log10().item(), -1.0), decades) * (height - 40) / decades,
    )
    points = " ".join("{:.1f},{:.1f}".format(*at(lag, value)) for lag, value in enumerate(norms))
    label = '<text x="34" y="{:.1f}" text-anchor="end">10<tspan dy="-4" font-size="8">-{}</tspan></text>'
    ticks = "".join(label.format(at(0, 10.0**-k)[1] + 4, k) for k in (0, 4, 8, 12))
    return (
        f"Norm of the gradient that the input of `lag` steps ago gets from the last output, as a share of the last "
        f"input's: a fresh layer, {sizes.UNITS} units, random input.\n\n"
        f'```{{raw}} html\n<svg class="flow" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Gradient norm over lags of {name}"><polyline points="{points}"/>{ticks}'
        f'<text x="{width - 10}" y="{height - 6}" text-anchor="end">lag {STEPS - 1}</text>'
        f'<text x="40" y="{height - 6}">lag 0</text></svg>\n```'
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
        f"# Cells\n\n{len(everything)} cells, each with its paper's equations and initialisation. Click on a column to "
        "sort by it. *Scan*: a parallel scan over time could compute it; *loop*: step by step. Times: one CPU thread."
        f"\n\n{_table(everything)}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )


def _table(cells: list[tuple[str, type[Cell]]]) -> str:
    per_unit = f"parameters a unit (D {sizes.INPUTS}, H {sizes.UNITS})"
    heads = (
        "cell",
        "what it is",
        "states",
        per_unit,
        "products a step",
        "scan or loop",
        "training time, LSTM = 1",
        "year",
    )
    rows = [f"| {' | '.join(_columns(name, kind))} |" for name, kind in cells]
    table = "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows])
    return f":::{{container}} sortable\n\n{table}\n:::"


def _columns(name: str, kind: type[Cell]) -> list[str]:
    cell = kind(sizes.INPUTS, sizes.UNITS)
    per_unit = sum(p.numel() for p in cell.parameters()) / sizes.UNITS
    summary = (inspect.getdoc(kind) or "").splitlines()[0].replace("|", "\\|")
    products, speed = speed_results.products(name), speed_results.beside_lstm(name)
    scan = "scan" if is_scan(kind) else "loop"
    measured = "" if products is None else str(products), scan, "" if speed is None else f"{speed:.2f}"
    return [
        f"[{name}]({name}.md)",
        summary,
        str(len(cell.states)),
        f"{per_unit:.0f}",
        *measured,
        str(getattr(kind, "year", "")),
    ]
