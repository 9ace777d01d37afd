"""The API reference: signature and docstring of every public name, grouped by module."""

import inspect
import pprint
import re
import textwrap
from types import ModuleType
from typing import Any

import recurra as rc

from . import error_list

GROUPS = {
    "Cells and layers": "Cell Recurrent layer register registry Trace Readout GatedOutput explain set_backend "
    "clear_caches diagram",
    "Modifiers": "Modifier Zoneout LayerNorm VariationalDropout RecurrentDropout WeightDrop",
    "Estimators": "SequenceClassifier SequenceRegressor Forecaster SequenceTagger LanguageModelEstimator "
    "EchoStateNetwork",
    "Networks": "CRF HMM ELMo ScalarMix TDNN HierarchicalRNN ClockworkRNN NARX BaldiBRNN DynamicalSystem",
    "Files and other libraries": "from_torch accelerate export infer_problem Problem compare report",
}
REST = "Files and other libraries"  # and every other name
MODULES = (
    *("init", "data", "models", "train", "inspect", "dynamics", "reservoir", "estimators", "problem", "compare"),
)
CONSTANTS = (str, tuple, dict)


def pages() -> dict[str, str]:
    found, listed, seen = {}, [], set()
    grouped = {title: names.split() for title, names in GROUPS.items()}
    grouped[REST] += sorted(_ungrouped() - {name for names in grouped.values() for name in names})
    for title, chosen in grouped.items():
        seen |= set(chosen)
        things = {n: getattr(rc, n) for n in chosen if n != "compare"}
        if title == "Cells and layers":
            things["cells.spike"] = rc.cells.spike
        if title == REST:
            things["compare"] = rc.compare.compare  # the module itself can be called
        found[_path(title)] = _page(title, "", "rc", things)
        listed.append((title, _path(title)))
    for name in MODULES:
        module = getattr(rc, name)
        public = {n: getattr(module, n) for n in getattr(module, "__all__", ()) if not n.startswith("_")}
        public = {n: each for n, each in public.items() if not isinstance(each, ModuleType) and n not in seen}
        title = f"rc.{name}"
        found[_path(title)] = _page(title, inspect.getdoc(module) or "", title, public)
        listed.append((title, _path(title)))
    errors = {n: e for n in rc.__all__ if isinstance(e := getattr(rc, n), type) and issubclass(e, (Exception, Warning))}
    found[_path("Errors")] = _page("Errors", error_list.text(), "rc", errors)
    listed.append(("Errors", _path("Errors")))
    listed.append(("The command line", "reference/command_line.md"))  # command_page.py writes it
    rows = "\n".join(f"{title} <{path.rpartition('/')[2].removesuffix('.md')}>" for title, path in listed)
    found["reference/index.md"] = (
        "# Reference\n\nEvery public name with its arguments, shapes and an example. The examples run as tests, after "
        "`import torch` and `import recurra as rc`. Layers with a name, such as `rc.LSTM`, take the arguments of "
        "`rc.Recurrent` and the options on the page of "
        f"their [cell](../cells/index.md).\n\n```{{toctree}}\n:maxdepth: 1\n\n{rows}\n```\n"
    )
    return found


def _ungrouped() -> set[str]:
    """Public names that are no module, no error and no layer of a cell, which has a page of its own."""
    layers = {kind.__name__ for kind in rc.registry().values()}
    things = {name: getattr(rc, name) for name in rc.__all__ if name not in layers}
    is_error = lambda t: isinstance(t, type) and issubclass(t, (Exception, Warning))  # noqa: E731
    return {name for name, thing in things.items() if not isinstance(thing, ModuleType) and not is_error(thing)}


def _path(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '_').replace('.', '_')}.md"


def _page(title: str, about: str, prefix: str, things: dict[str, Any]) -> str:
    parts = [f"# {title}", about] + [entry(f"{prefix}.{name}", thing) for name, thing in sorted(things.items())]
    return "\n\n".join(part for part in parts if part) + "\n"


def entry(name: str, thing: Any) -> str:
    """A heading, the signature, the docstring, and those of the methods; of a constant, its value."""
    if isinstance(thing, CONSTANTS):
        return f"## {name}\n\n```python\n{name} = {pprint.pformat(thing, width=80, sort_dicts=False)}\n```"
    text = f"## {name}\n\n{_signature(name, thing)}{_markdown(inspect.getdoc(thing))}"
    if isinstance(thing, type) and not issubclass(thing, Exception):
        text += "".join(
            f"\n\n### {thing.__name__}.{method}\n\n{_signature(method, each)}{_markdown(about)}"
            for method, each, about in _own_methods(thing)
        )
    return text


def _own_methods(kind: type) -> list[tuple[str, Any, str]]:
    """Public methods that the package defines, each with its docstring or that of the method it overrides."""
    members = inspect.getmembers(kind, lambda m: inspect.isfunction(m) or inspect.ismethod(m))
    own = [base for base in kind.__mro__ if base.__module__.startswith("recurra")]

    def about(name: str) -> str:
        found = (vars(base)[name] for base in own if name in vars(base))
        texts = (getattr(each, "__doc__", None) for each in found)
        return inspect.cleandoc(next(filter(None, texts), ""))

    shown = [(name, each, about(name)) for name, each in members if not name.startswith("_")]
    return [each for each in shown if each[2]]


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    given = [p for p in signature.parameters.values() if p.name != "self"]
    shown = [_parameter(p) for p in given]
    named = [number for number, p in enumerate(given) if p.kind is p.KEYWORD_ONLY]
    if named and not any(p.kind is p.VAR_POSITIONAL for p in given):
        shown.insert(named[0], "*")
    result = signature.return_annotation
    returned = "" if isinstance(thing, type) or result is inspect.Signature.empty else f" -> {_type(result)}"
    line = f"{name}({', '.join(shown)}){returned}"
    if len(line) > 80:
        line = f"{name}(\n    " + ",\n    ".join(shown) + f",\n){returned}"
    return f"```python\n{line}\n```\n\n"


def _parameter(parameter: inspect.Parameter) -> str:
    """`name: type = default`."""
    mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{mark}{parameter.name}"
    typed = parameter.annotation is not parameter.empty
    text += f": {_type(parameter.annotation)}" if typed else ""
    if parameter.default is parameter.empty:
        return text
    return f"{text} = {_value(parameter.default)}" if typed else f"{text}={_value(parameter.default)}"


def _value(default: Any) -> str:
    return default.__name__ if inspect.isfunction(default) or isinstance(default, type) else repr(default)


def _type(annotation: Any) -> str:
    """A type without the modules it comes from."""
    text = inspect.formatannotation(annotation).strip("'\"")
    text = re.sub(r"\*<class '([\w.]+)'>", r"Unpack[\1]", text)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Za-z_])", "", text).replace("NoneType", "None")


def _markdown(docstring: str | None) -> str:
    """A docstring as Markdown: an indented example becomes a fenced one."""
    lines, out, block = (docstring or "").splitlines(), [], []
    for line in [*lines, ""]:
        indented = line.startswith("    ") and (block or not (out and out[-1].strip()))
        session = line.startswith(">>> ") or (
            block and block[0].startswith(">>>") and block[-1].strip() and line.strip()
        )
        if indented or session or (block and not line.strip()):
            block.append(line)
            continue
        if block:
            out += _fenced(block)
            block = []
        out.append(line)
    return "\n".join(out + (_fenced(block) if block else []))


def _fenced(block: list[str]) -> list[str]:
    text = textwrap.dedent("\n".join(block)).strip("\n")
    if not text.strip():
        return [""]
    return [f"```{'pycon' if '>>>' in text else 'text'}", text, "```", ""]
