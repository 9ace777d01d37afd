"""Writes `docs/reading.md`: how every file of `files/` is read. Run `python tests/reading/reading_table.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from reading.expected import READINGS

import recurra as rc
from recurra.cli.error_handling import format_error
from recurra.errors import RecurraError
from recurra.problem.column_table import column_rows
from recurra.problem.series import series_lengths

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "reading.md"
FLAGS = {"--sort", "--fill", "--missing", "--encoding", "--target", "--id", "--dates", "--decimal", "--sheet", "--time"}
FLAGS |= {"--ignore", "--na"}
HEAD = """# How files are read

Every row is a file of [tests/reading/files](../tests/reading/files), written by hand in a way that people write tables,
and what `recurra fit` and `rc.infer_problem` make of it: the task, the role of every column and the number of sequences
and steps, or the error. [expected.py](../tests/reading/expected.py) has the reading that a person expects; the tests
compare both, fit a model and predict. `python tests/reading/reading_table.py` writes this page.

| file | options | read as |
|---|---|---|
"""


def columns_of(problem: rc.Problem) -> dict[str, str]:
    """Role → its columns, with commas; steps of a wide table as `t0 … t5`."""
    roles = {"input": "inputs", "categorical input": "inputs", "observed input": "observed"}
    found = {role: [] for role in ("id", "time", "target", "inputs", "observed", "static", "ignored")}
    for name, _, role, _ in column_rows(problem.columns):
        found[roles.get(role, role)].append(name)
    return {role: ", ".join(names) for role, names in found.items()}


def sequences_and_steps(problem: rc.Problem) -> tuple[int, str]:
    """How many sequences there are, and how many steps each has, with the frequency of a series."""
    summary = dict(problem.summary)
    if problem.task == "forecast":
        held = series_lengths(problem.test[0]) if problem.test else [0]
        number, _, frequency = summary["series"].split(", ", 1)[1].partition(" steps")
        assert len(held) == len(series_lengths(problem.train[0]))
        return len(held), f"{number}, {frequency.removeprefix(' each').removeprefix(', ')}"
    lengths = [len(x) for part in (problem.train, problem.test) if part for x in part[0]]
    if "of the steps" in summary["sequences"]:
        return 1, str(sum(lengths))  # one sequence, whose end is held out
    shown = str(lengths[0]) if len(set(lengths)) == 1 else f"{min(lengths)} to {max(lengths)}"
    return len(lengths), shown


def row(name: str) -> str:
    options = READINGS[name].options
    given = " ".join(f"--{key}" + ("" if value is True else f" {value}") for key, value in options.items())
    try:
        problem = rc.infer_problem(HERE / "files" / name, **options)
    except RecurraError as error:
        said = format_error(error, FLAGS).replace(str(HERE / "files") + "/", "")
        return f"| {name} | {given} | Error: {said.replace('|', chr(92) + '|')} |"
    if problem.task == "language":
        return f"| {name} | {given} | {dict(problem.summary)['task']} |"
    count, steps = sequences_and_steps(problem)
    roles = "; ".join(f"{role} {names}" for role, names in columns_of(problem).items() if names)
    plural = "series" if problem.task == "forecast" else "sequence" + "s" * (count != 1)
    length, _, frequency = steps.partition(", ")
    said = f"{problem.task}: {count} {plural} of {length} steps" + (f", {frequency}" if frequency else "")
    return f"| {name} | {given} | {said}" + (f"; {roles}" if roles else "") + " |"


def render() -> str:
    return HEAD + "\n".join(row(name) for name in READINGS) + "\n"


if __name__ == "__main__":
    DOCS.write_text(render(), encoding="utf-8")
