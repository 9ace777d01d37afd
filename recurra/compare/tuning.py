"""Hyperparameter search for one cell: learning rate, depth, dropout, and under a time budget the hidden size.

Trials are scored on a validation part of the training data; the test data is never used. The next trial depends only on
the finished trials, so a resumed search tries the same settings as an uninterrupted one.
"""

from dataclasses import replace
from typing import Any

from recurra.compare.fit_monitor import FitMonitor, ReportProgress
from recurra.compare.parameter_budget import NetworkFactory, matched_hidden_size
from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import Row, RunFolder, read_json, write_json
from recurra.compare.shared_run import import_optuna
from recurra.compare.worker import WorkerSetup
from recurra.errors import InputError
from recurra.problem import Problem
from recurra.problem.holdout import random_split
from recurra.problem.series import series_starts
from recurra.train.fit_context import fit_context
from recurra.train.fit_errors import NonFiniteError

VALIDATION_FRACTION, VALIDATION_TEXT_FRACTION = 0.25, 0.1


def search(setup: WorkerSetup, problem: Problem, cell: str, report: ReportProgress) -> Row:
    """The best settings of `tune` trials, and all trials."""
    optuna = import_optuna("tune")
    path = RunFolder(setup.folder).fit_path(WorkItem(cell, 0, "tuning")) / "trials.json"
    done: list[dict[str, Any]] = read_json(path) if path.exists() else []
    inner, total = with_validation_split(problem), setup.config.tune
    networks = NetworkFactory(problem, setup.config.settings)
    while len(done) < total:
        study = _rebuild_study(optuna, done, problem, setup)
        trial = study.ask(_search_space(optuna, problem, setup))
        settings = _settings(trial.params, setup, networks, cell)

        def report_trial(fraction: float, note: str, number: int = len(done)) -> None:
            report((number + fraction) / total, f"trial {number + 1}, {note.rpartition(', ')[2]}")

        score = _trial_score(inner, cell, settings, setup, report_trial)
        done.append({"params": trial.params, "settings": settings, "value": score})
        write_json(path, done)
    good = [one for one in done if one["value"] is not None]
    if not good:
        raise InputError("tune", f"{total} failed trials of {cell}", "at least one that trains to a finite loss")
    best = (max if problem.higher_is_better else min)(good, key=lambda one: one["value"])
    return {"settings": best["settings"], "score": best["value"], "trials": done}


def _rebuild_study(optuna: Any, done: list[dict[str, Any]], problem: Problem, setup: WorkerSetup) -> Any:
    """An optuna study with the finished trials; its sampler's seed is their number."""
    sampler = optuna.samplers.TPESampler(seed=len(done), n_startup_trials=5)
    direction = "maximize" if problem.higher_is_better else "minimize"
    study, space = optuna.create_study(sampler=sampler, direction=direction), _search_space(optuna, problem, setup)
    for one in done:
        failed = one["value"] is None
        state = optuna.trial.TrialState.FAIL if failed else optuna.trial.TrialState.COMPLETE
        study.add_trial(
            optuna.trial.create_trial(
                state=state, params=one["params"], distributions=space, value=None if failed else one["value"]
            )
        )
    return study


def _search_space(optuna: Any, problem: Problem, setup: WorkerSetup) -> dict[str, Any]:
    """Distributions of the options that the caller did not fix."""
    kinds = optuna.distributions
    space: dict[str, Any] = {
        "lr": kinds.FloatDistribution(1e-3, 3e-2, log=True),
        "num_layers": kinds.IntDistribution(1, 2),
    }
    if "dropout" in problem.estimator("lstm").get_params(deep=False):
        space["dropout"] = kinds.FloatDistribution(0.0, 0.5)
    if setup.config.budget == "time":
        space["hidden_size"] = kinds.IntDistribution(8, 4 * setup.config.hidden_size, log=True)
    return {name: kind for name, kind in space.items() if name not in setup.config.settings}


def _settings(params: dict[str, Any], setup: WorkerSetup, networks: NetworkFactory, cell: str) -> dict[str, Any]:
    """The sampled options; under a parameter budget with the hidden size that matches it at this depth."""
    if setup.config.budget == "time" or "hidden_size" in setup.config.settings:
        return dict(params)
    depth = {"num_layers": params["num_layers"]} if "num_layers" in params else {}
    return {**params, "hidden_size": matched_hidden_size(networks, setup.config, cell, **depth)}


def _trial_score(
    inner: Problem, cell: str, settings: dict[str, Any], setup: WorkerSetup, report: ReportProgress
) -> float | None:
    """The validation score, or None if the loss is not finite."""
    config = setup.config
    epochs = {} if config.epochs is None else {"epochs": config.epochs}
    estimator: Any = inner.estimator(cell, **{**epochs, **config.settings, **settings, "random_state": 0})
    monitor = FitMonitor(report, config.seconds if config.budget == "time" else None)
    try:
        with fit_context(callbacks=[monitor]):
            estimator.fit(*inner.train)
        return inner.score(estimator)
    except NonFiniteError:
        return None


def with_validation_split(problem: Problem) -> Problem:
    """The same problem with a part of the training data as its test data."""
    X, y = problem.train
    match problem.task:
        case "forecast":
            train, held = _split_series_ends(X, problem.options["horizon"])
            return replace(problem, train=(train, None), test=(held, None))
        case "language":
            cut = len(X) - int(VALIDATION_TEXT_FRACTION * len(X))
            return replace(problem, train=(X[:cut], None), test=(X[cut:], None))
        case _:
            labels = y if problem.task == "classify" else None
            train, held = (list(places) for places in random_split(len(X), VALIDATION_FRACTION, 0, labels))
            if not train or not held:
                raise InputError("tune", f"{len(X)} sequences", "enough to validate on some of them")
            return replace(problem, train=_subset(X, y, train), test=_subset(X, y, held))


def _subset(X: list[Any], y: Any, places: list[int]) -> tuple[Any, Any]:
    return [X[k] for k in places], [y[k] for k in places] if isinstance(y, list) else y[places]


def _split_series_ends(table: Any, horizon: int) -> tuple[Any, Any]:
    """The table without, and with only, the last steps of every series."""
    import numpy as np
    import pyarrow as pa

    starts = series_starts(table)
    shortest = int(np.diff(starts).min())
    held = horizon * max(1, min(5, int(VALIDATION_FRACTION * shortest / horizon)))
    if shortest - held < horizon + 2:
        raise InputError("tune", f"a series of {shortest} steps", f"at least {2 * horizon + 2} besides the test data")
    ends = np.zeros(table.num_rows, dtype=bool)
    for stop in starts[1:]:
        ends[stop - held : stop] = True
    return table.filter(pa.array(~ends)), table.filter(pa.array(ends))
