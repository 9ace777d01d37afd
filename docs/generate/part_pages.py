"""A page for every learning algorithm, task, modifier, model and estimator, from its docstring; an index a kind."""

import inspect
from typing import Any

from sklearn.base import BaseEstimator
from torch import nn

import recurra as rc
from recurra.data.tasks.base import CanonicalTask
from recurra.modifiers import Modifier

from .docstrings import summary
from .reference_pages import entry

KINDS = {
    "algorithms": ("Learning algorithms", "What adjusts the weights. All take `learner.step(x, target)` and any cell."),
    "tasks": ("Tasks", "Generated benchmarks of the literature, each with its score and that of a trivial answer."),
    "modifiers": ("Modifiers", "Regularisers of any cell: they rewrite its step before it is compiled."),
    "models": ("Models", "Networks built from layers."),
    "estimators": ("Estimators", "`fit`, `predict`, `score`, `save` and `load`, in scikit-learn's manner."),
}


def pages() -> dict[str, str]:
    found = {}
    for kind, (title, about) in KINDS.items():
        things = dict(sorted(_things(kind).items()))
        found |= {f"{kind}/{_file(name)}.md": _page(kind, name, thing) for name, thing in things.items()}
        rows = "\n".join(f"| [{name}]({_file(name)}.md) | {summary(thing)} |" for name, thing in things.items())
        listed = "\n".join(f"{name} <{_file(name)}>" for name in things)
        table = f":::{{container}} sortable\n\n| name | what it is |\n|---|---|\n{rows}\n:::"
        found[f"{kind}/index.md"] = f"# {title}\n\n{about}\n\n{table}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    return found


def _things(kind: str) -> dict[str, Any]:
    """Public name → class, as the package lists them."""
    if kind == "tasks":
        return {name: getattr(rc.data.tasks, name) for name in rc.data.tasks.names() if hasattr(rc.data.tasks, name)}
    places = {"algorithms": rc.train, "modifiers": rc, "models": rc.models, "estimators": rc.estimators}
    public = {name: getattr(places[kind], name) for name in places[kind].__all__}
    if kind == "estimators":
        public["EchoStateNetwork"] = rc.EchoStateNetwork
    return {name: each for name, each in public.items() if isinstance(each, type) and _belongs(kind, each)}


def _belongs(kind: str, each: type) -> bool:
    abstract = inspect.isabstract(each) or each in (Modifier, CanonicalTask, rc.train.Learner, rc.train.OnlineLearner)
    if kind == "algorithms":
        learns = issubclass(each, (rc.train.Learner, rc.train.Evolution)) or each is rc.train.TeacherForcing
        return learns and not abstract
    if kind == "modifiers":
        return issubclass(each, Modifier) and not abstract
    if kind == "models":
        return (issubclass(each, nn.Module) or each is rc.models.HMM) and not abstract
    return issubclass(each, BaseEstimator) and not abstract


def _page(kind: str, name: str, thing: Any) -> str:
    prefix = {"algorithms": "rc.train", "tasks": "rc.data.tasks", "models": "rc.models", "estimators": "rc.estimators"}
    place = "rc" if hasattr(rc, name) else prefix.get(kind, "rc")
    text = entry(f"{place}.{name}", thing).replace("\n### ", "\n## ")
    facts = _task_facts(thing) if kind == "tasks" and name != "sequential_mnist" else ""
    about, methods, rest = text.partition(chr(10))[2].strip().partition("\n## ")
    return f"# {name}\n\n{about.rstrip()}\n{facts}{methods}{rest}\n"


METRICS = {
    "mse": "mean squared error",
    "nrmse": "root mean squared error over the standard deviation (NRMSE)",
    "cross_entropy": "cross-entropy",
    "critical_accuracy": "share of right answers at the steps that need memory",
    "strings_right": "share of strings that are right at every step",
    "memory_capacity": "memory capacity",
}


def _task_facts(kind: type[CanonicalTask]) -> str:
    task = kind()
    better = {"lower": "lower is better", "higher": "higher is better"}[task.better]
    return (
        f"\n## Sizes and score\n\nAs it comes, a step has {_count(task.input_size, 'input')} and "
        f"{_count(task.output_size, 'output')}. The score is the {METRICS.get(task.metric, task.metric)}, {better}; an "
        f"answer that learns nothing has {task.baseline:.3g}.\n"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _file(name: str) -> str:
    return name.lower()
