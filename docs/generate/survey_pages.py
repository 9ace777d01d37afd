"""The survey as a guided path: sections, equations and figures beside the calls that are them, and the errata."""

import recurra as rc
from recurra.guide import SurveyEntry


def pages() -> dict[str, str]:
    return {"survey/index.md": _path(), "survey/errata.md": _errata()}


def _path() -> str:
    about = (
        "The sections, equations and figures of Ghojogh & Ghodsi, *Recurrent Neural Networks and Long Short-Term "
        "Memory Networks: Tutorial and Survey* (2023), in order and in our words. Beside each stands the call that is "
        "it; every figure is drawn by its call. Numbers such as E7 lead to the [errata](errata.md). "
        "`recurra survey 3.4` prints the same in a terminal."
    )
    parts = ["# The survey", about]
    parts += [_entry(entry) for entry in rc.survey()]
    return "\n\n".join(parts) + "\n\n```{toctree}\n:hidden:\n\nerrata\n```\n"


def _entry(entry: SurveyEntry) -> str:
    errata = " ".join(f"[{number}](errata.md#{number.lower()})" for number in entry.errata)
    heading = f"{'#' * (2 + entry.where.count('.'))} {entry.where} {entry.title}" if entry.title else ""
    words = entry.says if entry.title else f"**{entry.where}** {entry.says}"
    said = "\n\n".join(part for part in (heading, f"{words} {errata}".strip()) if part)
    calls = "\n".join(entry.calls)
    if entry.kind != "figure":
        return f"{said}\n\n```python\n{calls}\n```"
    drawn = "\n".join(f'<div class="diagram">{figure}</div>' for figure in entry.run())
    return f"{said}\n\n```python\n{calls}\n```\n\n```{{raw}} html\n{drawn}\n```"


def _errata() -> str:
    found = rc.train.errata()
    head = f"{len(found)} places where the print is wrong. Those that numbers can show are computed."
    parts = [f"# Errata of the survey\n\n{head}"]
    for each in found:
        shown = ""
        if each.printed_value is not None:
            shown = f"\n\nMeasured, {each.measured}: as printed {each.printed_value:.6g}, right {each.right_value:.6g}."
        parts.append(f"## {each.number}\n\nPrinted: {each.printed}\n\nRight: {each.right}{shown}")
    return "\n\n".join(parts) + "\n"
