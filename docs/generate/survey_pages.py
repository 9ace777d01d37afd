"""The errata of the survey as one page; the survey itself is in `docs/survey`."""

import recurra as rc


def pages() -> dict[str, str]:
    return {"survey/errata.md": _errata()}


def _errata() -> str:
    found = rc.train.errata()
    head = f"{len(found)} places where the print is wrong. Those that numbers can show are computed."
    parts = [f"# Errata of the survey\n\n{head}"]
    for each in found:
        shown = f"\n\nBecause {each.why}." if each.why else ""
        if each.printed_value is not None:
            values = f"as printed {each.printed_value:.6g}, right {each.right_value:.6g}"
            shown += f"\n\nMeasured, {each.measured}: {values}."
        parts.append(f"## {each.number}\n\nPrinted: {each.printed}\n\nRight: {each.right}{shown}")
    return "\n\n".join(parts) + "\n"
