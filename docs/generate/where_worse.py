"""Where something else is ahead of recurra, or a goal was missed: sentences made from the committed numbers."""

import json
import re
from typing import Any

from . import worse_on_the_card
from .speed_results import RESULTS


def listed() -> str:
    """A line for each result in which something else is ahead, or a goal was missed."""
    found = [
        *worse_on_the_card.lines(),
        *_slower_on_a_cpu(),
        *_slow_cells(),
        *_slower_online(),
        *_more_than_1997(),
        *_missed_goals(),
        *_below_published(),
        *_said_there(),
    ]
    return "\n".join(f"- {line}" for line in found)


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def _slower_on_a_cpu() -> list[str]:
    lines = []
    for line in (RESULTS / "peers.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| (T"):
            heads = [each.strip() for each in line.strip("|").split("|")]
        elif line.startswith("| ") and "---" not in line:
            cells = [each.strip() for each in line.strip("|").split("|")]
            ours = float(cells[1])
            lines += [
                f"**On a CPU**, {peer} trains {cells[0]} at {heads[0]} in {other} ms, recurra in {cells[1]} ms "
                "([table](peers.md))."
                for peer, other in zip(heads[2:], cells[2:], strict=True)
                if other and float(other) < ours
            ]
    return lines


def _slow_cells() -> list[str]:
    """Cells that cost ten times an LSTM."""
    rows = _read("cell_speed.json")["cells"].items()
    slow = sorted(
        (times, name) for name, row in rows if "lstm" in row and (times := row["milliseconds"] / row["lstm"]) > 10
    )
    named = ", ".join(f"[{name}](../cells/{name}.md) {times:.0f} ×" for times, name in reversed(slow))
    return [f"**Cells that train in more than ten times an LSTM's time** on a CPU: {named}."] if slow else []


def _slower_online() -> list[str]:
    """Online learners of braintrace that take less time."""
    found = _read("online.json").get("peers", {})
    slower = sorted(
        (row["ratio of the fastest"], name) for name, row in found.items() if row["ratio of the fastest"] < 1
    )
    if not slower:
        return []
    named = "; ".join(f"{1 / ratio:.3g} × for {name.partition(':')[0]}" for ratio, name in slower)
    return [
        f"**Learning online**, braintrace (JAX) is faster than recurra for {len(slower)} of {len(found)} pairs of an "
        f"algorithm and a schedule. recurra's time as a multiple of its: {named} ([table](online.md))."
    ]


def _more_than_1997() -> list[str]:
    """Experiments in which the LSTM of 1997 needed fewer sequences, and the strings of 2001."""
    lines = []
    for row in _table("lstm_1997"):
        counts = [re.match(r"[\d,]+", each) for each in row[2:4]]
        if len(row) == 6 and all(counts):
            ours, paper = (int(each.group().replace(",", "")) for each in counts if each)
            if ours > paper:
                name = row[0].partition(": ")[2][3:]
                lines.append(
                    f"**{name[:1].upper()}{name[1:]}** take {ours:,} sequences to learn, in the median; "
                    f"the paper of 1997 reports {paper:,} ([table](lstm_1997.md))."
                )
    text = _text("lstm_1997")
    found, paper = re.search(r"mean ([\d.]+), median", text), re.search(r"and (\d+) on average", text)
    if found and paper and float(found.group(1)) < int(paper.group(1)):
        lines.append(
            f"**aⁿbⁿcⁿ**: trained on n ≤ 10, all strings are right up to n = {found.group(1)} on average; Gers and "
            f"Schmidhuber 2001 report {paper.group(1)} ([table](lstm_1997.md))."
        )
    return lines


def _missed_goals() -> list[str]:
    found = {row[0]: row[1:] for row in _table("reconstruction") if len(row) >= 3}
    lines = []
    if "D_stsp" in found and float(found["D_stsp"][0]) > 0.5:
        lines.append(f"the distance D_stsp is {found['D_stsp'][0]}, and at most 0.5 was the goal")
    if "exponent" in found and abs(float(found["exponent"][0]) / 0.906 - 1) > 0.1:
        lines.append(f"the largest exponent is {found['exponent'][0]}, and 0.906 within 10 % was the goal")
    start = "**Reconstructing the Lorenz attractor** from one noisy coordinate: "
    return [f"{start}{line} ([table](reconstruction.md))." for line in lines]


def _below_published() -> list[str]:
    rows = [row for row in _table("jsb_chorales") if len(row) == 7 and re.match(r"[\d.]+ ±", row[2])]
    return [
        f"**{name} on the JSB chorales** reaches {found} nats; Chung et al. 2014 published {published} "
        "([table](jsb_chorales.md))."
        for name, _, found, _, _, published, _ in rows
        if float(found.split()[0]) > float(published)
    ]


def _said_there() -> list[str]:
    """What the tables of accuracy say themselves."""
    uea = re.search(r"Behind the better of them: ([^.]+)\.", _text("uea"))
    ucr = re.search(r"- `balanced` is .*? ROCKET is better by more than half a point on \d+: ([^.]+)\.", _text("ucr"))
    lines = []
    if uea:
        lines.append(f"**A linear model is better than the default classifier** on {uea.group(1)} ([table](uea.md)).")
    if ucr:
        lines.append(f"**ROCKET is better** by more than half a point of accuracy on {ucr.group(1)} ([table](ucr.md)).")
    base, ours = (_mase(row) for row in ("forecaster, its base", "forecaster"))
    if base is not None and ours is not None and ours > base:
        lines.append(
            f"**On ETTh1, 24 hours ahead, the network does not help**: the forecaster has a MASE of {ours:g}, its base "
            f"without the network {base:g} ([table](forecasting.md))."
        )
    return lines


def _mase(name: str) -> float | None:
    """Of the first table of forecasts."""
    found = [row[2] for row in _table("forecasting") if len(row) > 3 and row[0] == name]
    return float(found[0].split()[0]) if found else None


def _text(name: str) -> str:
    return " ".join((RESULTS / f"{name}.md").read_text(encoding="utf-8").split())


def _table(name: str) -> list[list[str]]:
    lines = (RESULTS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
