"""A search for every cell: rate, depth, dropout, and the size where parameters are not what cells share.

A part of the training data judges the trials; the test data is never looked at. What is tried next depends on what was
tried before and on nothing else, so a search that was interrupted goes on as if it had not been.
"""

from dataclasses import replace
from typing import Any

from recurra.compare.fit_monitor import Tell, Watch
from recurra.compare.plan import Entrant
from recurra.compare.run_folder import Folder, Row, read_json, write_json
from recurra.compare.shared_run import import_optuna
from recurra.compare.sizes import Blank, equal_size
from recurra.compare.worker import Duty
from recurra.errors import InputError
from recurra.problem import Question
from recurra.problem.holdout import draw
from recurra.problem.series import starts_of
from recurra.train.fit_context import surrounded
from recurra.train.fit_errors import NonFiniteError

HELD, HELD_TEXT = 0.25, 0.1


def search(duty: Duty, question: Question, cell: str, tell: Tell) -> Row:
    """The best settings of so many trials."""
    optuna = import_optuna("tune")
    path = Folder(duty.folder).fit(Entrant(cell, 0, "tuning")) / "trials.json"
    done: list[dict[str, Any]] = read_json(path) if path.exists() else []
    inner, total = validated(question), duty.rules.tune
    blank = Blank(question, duty.rules.settings)
    while len(done) < total:
        study = _study(optuna, done, question, duty)
        trial = study.ask(_space(optuna, question, duty))
        settings = _settings(trial.params, duty, blank, cell)

        def word(share: float, text: str, number: int = len(done)) -> None:
            tell((number + share) / total, f"trial {number + 1}, {text.rpartition(', ')[2]}")

        done.append({"params": trial.params, "settings": settings, "value": _value(inner, cell, settings, duty, word)})
        write_json(path, done)
    good = [one for one in done if one["value"] is not None]
    if not good:
        raise InputError("tune", f"{total} trials that all failed", f"one that works; {cell} may not suit this data")
    best = (max if question.higher_is_better else min)(good, key=lambda one: one["value"])
    return {"settings": best["settings"], "score": best["value"], "trials": done}


def _study(optuna: Any, done: list[dict[str, Any]], question: Question, duty: Duty) -> Any:
    """As it stands after the trials that are done."""
    sampler = optuna.samplers.TPESampler(seed=len(done), n_startup_trials=5)
    direction = "maximize" if question.higher_is_better else "minimize"
    study, space = optuna.create_study(sampler=sampler, direction=direction), _space(optuna, question, duty)
    for one in done:
        failed = one["value"] is None
        state = optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
        study.add_trial(
            optuna.trial.create_trial(
                state=state, params=one["params"], distributions=space, value=None if failed else one["value"]
            )
        )
    return study


def _space(optuna: Any, question: Question, duty: Duty) -> dict[str, Any]:
    kinds = optuna.distributions
    space: dict[str, Any] = {
        "lr": kinds.FloatDistribution(1e-3, 3e-2, log=True),
        "num_layers": kinds.IntDistribution(1, 2),
    }
    if "dropout" in question.estimator("lstm").get_params(deep=False):
        space["dropout"] = kinds.FloatDistribution(0.0, 0.5)
    if duty.rules.budget == "time":
        space["hidden_size"] = kinds.IntDistribution(8, 4 * duty.rules.hidden_size, log=True)
    return {name: kind for name, kind in space.items() if name not in duty.rules.settings}


def _settings(params: dict[str, Any], duty: Duty, blank: Blank, cell: str) -> dict[str, Any]:
    """What was drawn; where parameters are shared, the size that keeps their number at this depth."""
    if duty.rules.budget == "time" or "hidden_size" in duty.rules.settings:
        return dict(params)
    depth = {"num_layers": params["num_layers"]} if "num_layers" in params else {}
    return {**params, "hidden_size": equal_size(blank, duty.rules, cell, **depth)}


def _value(inner: Question, cell: str, settings: dict[str, Any], duty: Duty, tell: Tell) -> float | None:
    """The score on the part that was held back, or None where the training fails."""
    rules = duty.rules
    epochs = {} if rules.epochs is None else {"epochs": rules.epochs}
    made: Any = inner.estimator(cell, **{**epochs, **rules.settings, **settings, "random_state": 0})
    watch = Watch(tell, rules.seconds if rules.budget == "time" else None)
    try:
        with surrounded(callbacks=[watch]):
            made.fit(*inner.train)
        return inner.score(made)
    except NonFiniteError:
        return None


def validated(question: Question) -> Question:
    """The same question with a part of the training data in the place of the test data."""
    X, y = question.train
    match question.task:
        case "forecast":
            learn, held = _ends(X, question.options["horizon"])
            return replace(question, train=(learn, None), test=(held, None))
        case "language":
            cut = len(X) - int(HELD_TEXT * len(X))
            return replace(question, train=(X[:cut], None), test=(X[cut:], None))
        case _:
            labels = y if question.task == "classify" else None
            learn, held = (list(places) for places in draw(len(X), HELD, 0, labels))
            if not learn or not held:
                raise InputError("tune", f"{len(X)} sequences", "enough to hold some back")
            return replace(question, train=_picked(X, y, learn), test=_picked(X, y, held))


def _picked(X: list[Any], y: Any, places: list[int]) -> tuple[Any, Any]:
    return [X[k] for k in places], [y[k] for k in places] if isinstance(y, list) else y[places]


def _ends(table: Any, horizon: int) -> tuple[Any, Any]:
    """The last steps of every series held back."""
    import numpy as np
    import pyarrow as pa

    starts = starts_of(table)
    shortest = int(np.diff(starts).min())
    held = horizon * max(1, min(5, int(HELD * shortest / horizon)))
    if shortest - held < horizon + 2:
        raise InputError("tune", f"a series of {shortest} steps", f"{2 * horizon + 2} or more beside the test part")
    ends = np.zeros(table.num_rows, dtype=bool)
    for stop in starts[1:]:
        ends[stop - held : stop] = True
    return table.filter(pa.array(~ends)), table.filter(pa.array(ends))
