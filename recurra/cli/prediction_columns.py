"""A model's predictions as columns of a table."""

from datetime import datetime
from datetime import time as midnight
from typing import Any

import numpy as np

from recurra.cli.model_folder import SavedModel
from recurra.errors import InputError, OptionError


def columns(
    model: SavedModel, source: str, *, proba: bool, horizon: int | None, interval: float, future: str | None
) -> dict[str, Any]:
    """Column name → values, all of one length."""
    if model.task == "forecast":
        return _forecast(model, source, horizon, interval, future)
    for name, given in (("--horizon", horizon), ("--future", future)):
        if given is not None:
            raise OptionError(name, f"a model to {model.task}", "a model to forecast")
    if model.task == "classify":
        return _classes(model, source, proba)
    if proba and model.task in ("regress", "regress_steps"):
        raise OptionError("--proba", "a model that predicts numbers", "a model of classes or tags")
    if model.task == "regress":
        return _numbers(model, source)
    if model.task in ("classify_steps", "regress_steps"):
        return _steps(model, source, proba)
    if model.task == "translate":
        return _translations(model, source, proba)
    return _tags(model, source, proba) if model.task == "tag" else _next_tokens(model, source)


def _id_column(model: SavedModel) -> str:
    return model.schema.get("id") or "sequence"


def _classes(model: SavedModel, source: str, proba: bool) -> dict[str, Any]:
    found, classes = model.read(source), model.estimator.classes_
    probabilities = model.estimator.predict_proba(found.X)
    best = probabilities.argmax(axis=1)
    table = {
        _id_column(model): found.names,
        "prediction": classes[best].tolist(),
        "probability": probabilities.max(axis=1).tolist(),
    }
    if proba:
        table |= {f"p({name})": probabilities[:, k].tolist() for k, name in enumerate(classes.tolist())}
    return table


def _numbers(model: SavedModel, source: str) -> dict[str, Any]:
    found = model.read(source)
    answers = np.asarray(model.estimator.predict(found.X))
    if answers.ndim == 1:
        return {_id_column(model): found.names, "prediction": answers.tolist()}
    many = {f"prediction {k}": answers[:, k].tolist() for k in range(answers.shape[1])}
    return {_id_column(model): found.names, **many}


def _steps(model: SavedModel, source: str, proba: bool) -> dict[str, Any]:
    """One row per step: the sequence, the number of the step, the prediction."""
    found = model.read(source)
    lengths = [len(x) for x in found.X]
    table: dict[str, Any] = {
        _id_column(model): [name for name, length in zip(found.names, lengths, strict=True) for _ in range(length)],
        "step": [step for length in lengths for step in range(1, length + 1)],
        "prediction": np.concatenate(model.estimator.predict(found.X)).tolist(),
    }
    if model.task == "regress_steps":
        return table
    probabilities = np.concatenate(model.estimator.predict_proba(found.X))
    table["probability"] = probabilities.max(axis=1).tolist()
    if proba:
        named = enumerate(model.estimator.classes_.tolist())
        table |= {f"p({name})": probabilities[:, k].tolist() for k, name in named}
    return table


def _forecast(
    model: SavedModel, source: str, horizon: int | None, interval: float, future: str | None
) -> dict[str, Any]:
    known = model.schema.get("known", ())
    if known and future is None:
        steps = horizon or model.estimator.horizon
        count = "next step" if steps == 1 else f"next {steps} steps"
        raise InputError("--future", "no file", f"a file with {', '.join(known)} for the {count}")
    table = model.read(source).X
    ahead = _future(model, future) if future else None
    points = model.estimator.predict(horizon, table, ahead)
    bounds = model.estimator.predict_interval(horizon, interval, table, ahead)
    times = [name for name in ("unique_id", "ds") if name in points.column_names]
    named = {"unique_id": model.schema.get("id") or "series", "ds": _time_name(model)}
    found = {named[name]: points.column(name).to_pylist() for name in times}
    if model.schema.get("unit") == "date":
        found[named["ds"]] = _as_dates(found[named["ds"]])
    percent = f"{100 * interval:g}%"
    for target in points.column_names[len(times) :]:
        several = isinstance(model.schema["target"], list)
        prefix = f"{target} " if several else ""
        found[target if several else "prediction"] = points.column(target).to_pylist()
        for side in ("lower", "upper"):
            found[f"{prefix}{side} {percent}"] = bounds.column(f"{prefix}{side}").to_pylist()
    return found


def _time_name(model: SavedModel) -> str:
    time = model.schema.get("time") or "step"
    return time if isinstance(time, str) else "+".join(time)


def _as_dates(times: list[datetime]) -> list[Any]:
    """Times as dates if all of them are midnights."""
    return [time.date() for time in times] if all(time.time() == midnight() for time in times) else times


def _future(model: SavedModel, source: str) -> Any:
    """The future values of known inputs."""
    from recurra.problem.series import read_future

    if not model.schema["known"]:
        raise OptionError("--future", source, "no file, since the model has no inputs known in advance")
    return read_future(source, model.schema | model.cleaning)


def _tags(model: SavedModel, source: str, proba: bool) -> dict[str, Any]:
    sentences = model.read(source).X
    tags = model.estimator.predict(sentences)
    places = [
        (k, word, tag)
        for k, pair in enumerate(zip(sentences, tags, strict=True))
        for word, tag in zip(*pair, strict=True)
    ]
    table = {name: [place[k] for place in places] for k, name in enumerate(("sentence", "word", "tag"))}
    if proba:
        found = np.concatenate(model.estimator.predict_proba(sentences))
        table |= {f"p({name})": found[:, k].tolist() for k, name in enumerate(model.estimator.classes_.tolist())}
    return table


def _translations(model: SavedModel, source: str, proba: bool) -> dict[str, Any]:
    if proba:
        raise OptionError("--proba", "a model that writes texts", "a model of classes or tags")
    texts = model.read(source).X
    return {next(iter(model.schema.get("inputs", ())), "text"): texts, "prediction": model.estimator.predict(texts)}


def _next_tokens(model: SavedModel, source: str) -> dict[str, Any]:
    lines = [line for line in model.read(source).X.splitlines() if line.strip()]
    found = model.estimator.predict_proba(lines)
    tokens = np.asarray(model.estimator.tokens_)[found.argmax(axis=1)]
    return {"text": lines, "next": tokens.tolist(), "probability": found.max(axis=1).tolist()}
