"""`recurra demo`: two comparisons, one in which memory decides and one in which it does not."""

from typing import Any

FIRST = {"epochs": 12}
SECOND = {"cells": "rnn,gru,lstm,min_gru", "seeds": 2}


def demo() -> None:
    """Compare cells on two built-in data sets: one in which memory decides, and one in which it does not.

    Same as [bold]recurra compare open_quotes --epochs 12[/] and
    [bold]recurra compare japanese_vowels --cells rnn,gru,lstm,min_gru --seeds 2[/].
    """
    from recurra.cli import printing
    from recurra.cli.compare import run

    console = printing.stderr_console()
    console.print("[bold]1. Is a string open at the end of this line of code?[/]")
    console.print("Only the quotation marks since its beginning tell: a model must remember them.\n")
    board = run("open_quotes", {}, dict(FIRST))
    _print_why(board)
    console.print("\n[bold]2. Which of nine speakers says this vowel?[/]")
    console.print("Averages over the utterance tell: a linear model is enough.\n")
    run("japanese_vowels", {}, dict(SECOND))


def _print_why(board: Any) -> None:
    """Accuracy by the number of quotation marks in the line, of the best cell, the worst one and the best baseline."""
    from rich.console import Console
    from rich.table import Table

    counts, rows = accuracy_by_marks(board)
    table = Table(title="Accuracy by quotation marks to remember", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for heading in counts:
        table.add_column(heading, justify="right")
    for name, shares in rows:
        table.add_row(name, *(f"{100 * share:.1f} %" for share in shares))
    Console(highlight=False).print(table)


def accuracy_by_marks(board: Any) -> tuple[list[str], list[tuple[str, list[float]]]]:
    """Headings, and (name, accuracy for lines with 1, 2, 3 or more marks) of three entries of the board."""
    import numpy as np

    from recurra.compare.baselines import baseline
    from recurra.data import open_quotes
    from recurra.estimators import SequenceClassifier
    from recurra.problem import infer_problem

    problem = infer_problem("open_quotes")
    X, y = problem.test or problem.train
    marks = np.array([line.count('"') + line.count("'") for line in open_quotes("test").lines]).clip(1, 3)
    cells = [entry.name for entry in board.entries if not entry.baseline and entry.mean is not None]
    rival = next(entry.name for entry in board.entries if entry.baseline)
    models: dict[str, Any] = {
        name: SequenceClassifier.load(board.folder / "models" / name) for name in cells[:: len(cells) - 1]
    }
    models[f"{rival} (baseline)"] = baseline("classify", rival, {}, 0).fit(*problem.train)
    rows = []
    for name, model in models.items():
        right = np.asarray(model.predict(X)) == y
        rows.append((name, [float(right[marks == count].mean()) for count in (1, 2, 3)]))
    return ["1 mark", "2 marks", "3 or more"], rows
