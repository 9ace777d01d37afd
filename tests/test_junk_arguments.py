"""Every public function and class, called with what it was not made for: an error of recurra, never one from inside."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recurra as rc

ROOMS = {
    "rc": rc,
    "rc.train": rc.train,
    "rc.inspect": rc.inspect,
    "rc.dynamics": rc.dynamics,
    "rc.data": rc.data,
    "rc.models": rc.models,
    "rc.reservoir": rc.reservoir,
    "rc.init": rc.init,
    "rc.data.tasks": rc.data.tasks,
}
# Of a whole run, of what the caller subclasses or registers, and what functions return.
LEFT_OUT = {"compare", "survey", "Cell", "register", "clear_caches", "evolve_cells", "Errata", "Trace"}
JUNK: list[Any] = ["a", None, object(), 10**30, np.zeros((2, 2)), [[1, 2], [3]]]
MORE: list[Any] = [-1, 0, [], {}, float("nan"), 1.5, True, torch.zeros(2), b"x", lambda v: v, int]


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    seen = set()
    for room, module in ROOMS.items():
        for name in getattr(module, "__all__", None) or dir(module):
            made = getattr(module, name, None)
            is_result = isinstance(made, type) and (
                issubclass(made, (BaseException, tuple)) or hasattr(made, "__dataclass_fields__")
            )
            own = callable(made) and getattr(made, "__module__", "").startswith("recurra") and name[0] != "_"
            if own and not is_result and name not in LEFT_OUT and id(made) not in seen:
                seen.add(id(made))
                yield f"{room}.{name}", made


def leaks(function: Callable[..., Any], junk: list[Any]) -> list[str]:
    """What comes out of a function whose required arguments are all the same junk, apart from errors of recurra."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    count = max(1, sum(p.kind in kinds and p.default is p.empty for p in parameters))
    found = []
    for value in junk:
        try:
            result = function(*[value] * count)
            if inspect.isgenerator(result):
                next(result, None)
        except rc.RecurraError:
            pass
        except Exception as error:
            frames = inspect.getinnerframes(error.__traceback__)  # pyrefly: ignore
            if any("recurra" in Path(frame.filename).parts for frame in frames[1:]):  # else Python refused the call
                found.append(f"{value!r:.40}: {type(error).__name__}: {error}")
    return found


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


CHECKED = {name: function for name, function in public() if not name.startswith("rc.data.read")}


@pytest.mark.parametrize("part", range(4))
def test_no_error_from_inside(part: int):
    leaking = {name: leaks(CHECKED[name], JUNK) for name in list(CHECKED)[part::4]}
    assert not {name: found for name, found in leaking.items() if found}


@pytest.mark.slow
def test_no_error_from_inside_with_more_junk():
    leaking = {name: leaks(function, MORE) for name, function in public()}
    assert not {name: found for name, found in leaking.items() if found}


@pytest.mark.parametrize("make", [rc.GRU, lambda *sizes: rc.layer("mamba", *sizes), rc.models.NADE, rc.reservoir.ring])
@pytest.mark.parametrize("size", [10**19, 10**30])
def test_sizes_that_no_tensor_has_are_refused(make: Callable[..., Any], size: int):
    with pytest.raises(rc.InputError, match=r"a whole number"):
        make(size, 2)
    with pytest.raises(rc.InputError, match=r"a whole number"):
        make(2, size)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "COO": lambda t: t.to_sparse(),
    "MKL-DNN": lambda t: t.to_mkldnn(),
    "nested": lambda t: torch.nested.nested_tensor(list(t)),
}


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_states_are_dense(layout: str, backend: str):
    x, gru, lstm = torch.zeros(5, 2, 3), rc.GRU(3, 4), rc.LSTM(3, 4)
    dense, other = torch.zeros(1, 2, 4), LAYOUTS[layout](torch.zeros(1, 2, 4))
    calls = [lambda: gru(x, other), lambda: gru.step(x[0], other), lambda: lstm(x, (dense, other))]
    if layout != "nested":
        calls += [lambda: gru.step(LAYOUTS[layout](x[0])), lambda: gru(LAYOUTS[layout](x))]
    for call in calls:
        with rc.set_backend(backend), pytest.raises(rc.InputError, match=r"(state|x): got .*, expected a dense tensor"):
            call()
