"""Runs one work item in a worker: fit a cell or a baseline, score it on the test data, save the model."""

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from recurra.compare.baselines import baseline
from recurra.compare.fit_monitor import FitMonitor, NeedsCheckpoints, ReportProgress, time_one_epoch
from recurra.compare.parameter_budget import NetworkFactory, count_parameters, matched_hidden_size
from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import Row, RunFolder, read_json, write_json
from recurra.compare.worker import WorkerSetup
from recurra.problem import Problem, infer_problem, save_problem
from recurra.problem.problem import fitted_network
from recurra.train.fit_context import fit_context


class FitRunner:
    """The problem and the configuration of a run, ready for work items."""

    def __init__(self, setup: WorkerSetup):
        self.setup, self.config, self.folder = setup, setup.config, RunFolder(setup.folder)
        self.problem: Problem = infer_problem(**setup.config.problem)

    def run(self, item: WorkItem, report: ReportProgress) -> Row:
        match item.kind:
            case "baseline":
                return self._run_baseline(item)
            case "tuning":
                from recurra.compare.tuning import search

                return search(self.setup, self.problem, item.name, report)
            case _:
                return self._run_cell(item, report)

    def _run_baseline(self, item: WorkItem) -> Row:
        started = time.perf_counter()
        model = baseline(self.problem.task, item.name, self.problem.options, item.seed)
        model.fit(*self.problem.train)
        seconds = time.perf_counter() - started
        return {"score": self._score(model), "parameters": model.n_parameters_, "seconds": seconds}

    def _score(self, model: Any) -> float:
        score = self.problem.score(model)
        if not math.isfinite(score):
            raise ArithmeticError(f"{self.problem.metric} is not finite")
        return score

    def _run_cell(self, item: WorkItem, report: ReportProgress) -> Row:
        settings = self.settings(item.name)
        limit = None
        if self.config.budget == "time":
            settings["epochs"], limit = self._time_budget(item, settings)
        estimator, monitor = self._fit(item, settings, report, limit)
        path = self.folder.seed_model_path(item)
        save_problem(self.problem, estimator, path)  # with its schema, so that `recurra predict` can read other files
        return {
            "score": self._score(estimator),
            "parameters": count_parameters(fitted_network(estimator)),
            "seconds": monitor.seconds,
            "hidden_size": settings["hidden_size"],
            "settings": {name: value for name, value in settings.items() if name != "hidden_size"},
            "epochs": len(estimator.history_),
            "history": estimator.history_,
            "model": str(path.relative_to(self.folder.path)),
        }

    def settings(self, cell: str) -> dict[str, Any]:
        """Options of the estimator: those given, those found by tuning, and the hidden size."""
        tuned: dict[str, Any] = {}
        if self.config.tune:
            tuned = dict(read_json(self.folder.row_path(WorkItem(cell, 0, "tuning")))["settings"])
        epochs = {} if self.config.epochs is None else {"epochs": self.config.epochs}
        settings = {**epochs, **self.config.settings, **tuned}
        return {"hidden_size": self._hidden_size(cell, settings), **settings}

    def _hidden_size(self, cell: str, settings: dict[str, Any]) -> int:
        if "hidden_size" in settings or self.config.budget == "time":
            return settings.get("hidden_size", self.config.hidden_size)
        return matched_hidden_size(NetworkFactory(self.problem, self.config.settings), self.config, cell)

    def _time_budget(self, item: WorkItem, settings: dict[str, Any]) -> tuple[int, float]:
        """Epochs that fit into the time budget, and seconds for each fit. Measured once; a resumed fit reads them."""
        path = self.folder.fit_path(item) / "allowed.json"
        if not path.exists():
            one_epoch = {**settings, "epochs": 1, "random_state": item.seed}
            estimator: Any = self.problem.estimator(item.name, **one_epoch)
            epoch_seconds, fits = time_one_epoch(lambda: estimator.fit(*self.problem.train))
            seconds = self.config.seconds
            write_json(path, {"epochs": max(1, round(seconds / epoch_seconds)), "seconds": seconds / fits})
        allowed = read_json(path)
        return allowed["epochs"], allowed["seconds"]

    def _fit(
        self, item: WorkItem, settings: dict[str, Any], report: ReportProgress, limit: float | None
    ) -> tuple[Any, FitMonitor]:
        """A fitted estimator; fits that take long, or were started with checkpoints, keep checkpoints."""
        checkpoints = self.folder.fit_path(item) / "checkpoints"
        if not checkpoints.exists():
            with suppress(NeedsCheckpoints):
                return self._fit_once(item, settings, FitMonitor(report, limit, self.setup.checkpoint_after), None)
        return self._fit_once(item, settings, FitMonitor(report, limit), checkpoints)

    def _fit_once(
        self, item: WorkItem, settings: dict[str, Any], monitor: FitMonitor, checkpoints: Path | None
    ) -> tuple[Any, FitMonitor]:
        estimator: Any = self.problem.estimator(item.name, **settings, random_state=item.seed)
        with fit_context(checkpoints, [monitor]):
            estimator.fit(*self.problem.train)
        return estimator, monitor
