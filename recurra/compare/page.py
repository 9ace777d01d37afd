"""The report page of a run: the leaderboard, how all cells learned, and the best one looked into."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurra.compare.fitting import network_of
from recurra.compare.leaderboard import Leaderboard
from recurra.compare.plan import Rules
from recurra.compare.run_folder import Folder, Row
from recurra.data.sequences import SequenceSet
from recurra.inspect import report
from recurra.inspect.subject import Sample
from recurra.problem import Question
from recurra.problem.problem import estimator_kind

COMPARED = 4  # models whose gradients are drawn beside each other
SEEN = 8  # sequences, or characters of text a hundredfold


def write_report(
    folder: Folder, board: Leaderboard, rows: Sequence[Row], question: Question, rules: Rules
) -> Path | None:
    """Where a model is here to be looked at; on a machine that fitted none, nothing."""
    kind: Any = estimator_kind(question.task)
    found = [one for one in board.standings if not one.baseline and folder.model(one.name).is_dir()]
    made = {one.name: kind.load(folder.model(one.name)) for one in found[:COMPARED]}
    if not made:
        return None
    first = next(iter(made.values()))
    histories = {one.name: _history(rows, one.name) for one in found}
    best = next(iter(made))
    settings = {**dict(question.facts), "budget": _budget(rules), "seeds": _seeds(rows), "model looked into": best}
    return report(
        {name: network_of(one) for name, one in made.items()},
        looked_at(question, first),
        folder.path / "report.html",
        title=f"{Path(question.source).name}: {len(found)} cells compared, {best} looked into",
        history={name: history for name, history in histories.items() if history},
        leaderboard=_listed(board),
        settings=settings,
    )


def _listed(board: Leaderboard) -> list[dict[str, Any]]:
    """The lines of the table, each with its scores to be drawn."""
    factor = board.unit[0]
    return [
        {key: text for key, text in line.items() if key not in ("", "seeds")}
        | {"scores": [factor * score for score in one.scores]}
        for line, one in zip(board.lines(), board.standings, strict=True)
    ]


def _history(rows: Sequence[Row], name: str) -> list[dict[str, Any]]:
    return next((row["history"] for row in rows if row["name"] == name and row.get("history")), [])


def _seeds(rows: Sequence[Row]) -> str:
    return str(1 + max(row["seed"] for row in rows))


def _budget(rules: Rules) -> str:
    if rules.budget == "time":
        return f"{rules.seconds:g} seconds of training a cell and seed"
    return f"the parameters of an LSTM of {rules.hidden_size} units"


def looked_at(question: Question, made: Any) -> Any:
    """A few sequences as the network reads them."""
    X, y = question.test or question.train
    match question.task:
        case "classify":
            return _set(made, X[:SEEN], np.searchsorted(made.classes_, np.asarray(y)[:SEEN]))
        case "regress":
            targets = np.asarray(y, dtype=np.float64)[:SEEN]
            return _set(made, X[:SEEN], made.target_scaling_.apply(targets.reshape(len(targets), -1)))
        case "tag":
            return made.tagger_.encode(X[:SEEN], y[:SEEN])
        case "language":
            return made.model_.vocabulary.encode(X[: 25 * SEEN])
        case _:
            return _heard(made)


def _heard(made: Any) -> Sample:
    """What a forecaster's network reads when it is asked to go on."""
    heard: list[tuple[Any, ...]] = []
    hook = made.network_.register_forward_pre_hook(lambda module, given: heard.append(given))
    try:
        made.predict()
    finally:
        hook.remove()
    inputs, lengths = heard[0][:2]
    return Sample(inputs[:, :SEEN], lengths[:SEEN])


def _set(made: Any, X: list[Any], targets: np.ndarray) -> SequenceSet:
    return made._set(made._asked(X), targets)
