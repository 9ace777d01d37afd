"""What a run is made of, as plain values: saved in its checkpoints and compared when it is resumed.

Values that say how a run goes on, such as the number of epochs, the device or the folder, are not part of it.
"""

import hashlib
import inspect
import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from recurra.data.batching import BatchSource
from recurra.data.sequences import SequenceSet
from recurra.data.stores import Store, window
from recurra.train.distributed import Processes
from recurra.train.fit_errors import RankError
from recurra.train.objective import MeanLoss, Objective

Settings = dict[str, Any]

SAMPLED_SEQUENCES, SAMPLED_STEPS = 100, 100_000  # values of a data set that are compared; of larger sets a part
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
#: options of an optimizer that choose an implementation, not the numbers
IMPLEMENTATION = {"params", "lr", "initial_lr", "foreach", "fused", "capturable", "differentiable"}
OF_EVERY_PROCESS = {"rank", "world_size"}
SCHEDULER_STATE = {"last_epoch", "best", "num_bad_epochs", "cooldown_counter"}
DEPTH = 4  # of objects inside objects that are described
MAX_ITEMS = 64  # of a list that is kept as it is


def describe_run(
    model: nn.Module,
    optimizer: Optimizer,
    goal: Objective,
    train: BatchSource,
    valid: BatchSource | None,
    **others: Any,
) -> Settings:
    """The settings of a run by name. `others` are described by their values, such as `clip=1.0`."""
    rates = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]
    options = [{k: v for k, v in group.items() if k not in IMPLEMENTATION} for group in optimizer.param_groups]
    batches = {"kind": type(train).__name__, "count": len(train), **_constructor_values(train)}
    if {"batch_size", "sequences"} <= batches.keys():
        del batches["count"]  # follows from them
    settings = {
        "model": ADDRESS.sub("", repr(model)),
        "optimizer": {"kind": type(optimizer).__name__, "options": options},
        "lr": rates[0] if len(rates) == 1 else rates,
        "loss": goal.loss if isinstance(goal, MeanLoss) else goal,
        "batch_size": batches.pop("batch_size", None),
        "train": batches.pop("sequences", None),
        "batches": batches,
        "valid": None if valid is None else _constructor_values(valid).get("sequences", type(valid).__name__),
        **others,
    }
    return json.loads(json.dumps({name: describe(value) for name, value in settings.items()}))


def _constructor_values(source: BatchSource) -> dict[str, Any]:
    """The arguments a source was made with, as far as it keeps them, but for its place among the processes."""
    names = inspect.signature(type(source)).parameters
    return {name: getattr(source, name) for name in names if hasattr(source, name) and name not in OF_EVERY_PROCESS}


# ----------------------------------------------------------------------------------------------- differences


def check_same_settings(settings: Settings, processes: Processes) -> None:
    """Several processes train one model: all must have the same data and options."""
    first, *others = processes.gather(settings)
    for rank, other in enumerate(others, 1):
        for name in (name for name in first if first[name] != other.get(name)):
            mine, theirs = _first_difference(first[name], other.get(name))
            raise RankError(f"process {rank} would train with another {name} than process 0: {theirs}, not {mine}")


def differences(before: Settings, now: Settings) -> dict[str, str]:
    """What differs, by name, in words. A setting that only one of the two has, of another version, is left out."""
    changed = [name for name in now if name in before and before[name] != now[name]]
    return {name: "{}, now {}".format(*_first_difference(before[name], now[name])) for name in changed}


def _first_difference(before: Any, now: Any) -> tuple[str, str]:
    if isinstance(before, dict) and isinstance(now, dict):
        name = next(name for name in {**before, **now} if before.get(name) != now.get(name))
        return tuple(f"{name} {text}" for text in _first_difference(before.get(name), now.get(name)))  # pyrefly: ignore
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return next(_first_difference(a, b) for a, b in zip(before, now, strict=True) if a != b)
    if isinstance(before, str) and isinstance(now, str) and "\n" in before + now:
        lines = zip([*before.splitlines(), ""], [*now.splitlines(), ""], strict=False)
        return next((a.strip(), b.strip()) for a, b in lines if a != b)
    return _shorten(before), _shorten(now)


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# ----------------------------------------------------------------------------------------------- descriptions


def describe(value: Any, depth: int = DEPTH) -> Any:
    """A value as JSON that is the same in another process. Objects are described by their kind and public values."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else repr(value)
        case Tensor():
            return f"{tuple(value.shape)} {_digest(_bytes(value))}"
        case SequenceSet():
            return f"{len(value)} sequences of {int(value.lengths.sum())} steps, {_digest(*_sampled(value))}"
        case FunctionType():
            return _describe_function(value, depth)
        case MethodType():
            return [type(value.__self__).__qualname__, describe(value.__func__, depth)]
        case np.generic():
            return describe(value.item())
        case LRScheduler():
            return {"kind": type(value).__name__, **_scheduler_options(value)}
        case partial():
            parts = (value.func, list(value.args), value.keywords)
            return [describe(part, depth - 1) for part in parts]
        case nn.Module():
            return ADDRESS.sub("", repr(value))
        case type():
            return value.__qualname__
    if depth == 0:
        return type(value).__qualname__
    if isinstance(value, Mapping):
        return _bounded({str(key): describe(one, depth - 1) for key, one in value.items()})
    if isinstance(value, list | tuple):
        return _bounded([describe(one, depth - 1) for one in value])
    public = {name: one for name, one in getattr(value, "__dict__", {}).items() if not name.startswith("_")}
    public = {name: describe(one, depth - 1) for name, one in public.items() if not isinstance(one, nn.Module)}
    return {"kind": type(value).__qualname__, **public} if public else type(value).__qualname__


def _bounded(described: Any) -> Any:
    """A long list, such as a vocabulary, is replaced by its number of items and a digest."""
    if len(described) <= MAX_ITEMS:
        return described
    return f"{len(described)} items, {_digest(json.dumps(described).encode())}"


def _scheduler_options(scheduler: LRScheduler) -> dict[str, Any]:
    """The plain values of a torch scheduler, but for those that change while it runs."""
    plain = {name: value for name, value in vars(scheduler).items() if isinstance(value, bool | int | float | str)}
    return {name: value for name, value in plain.items() if not name.startswith("_") and name not in SCHEDULER_STATE}


def _describe_function(function: FunctionType, depth: int) -> Any:
    """Name, bytecode and the values of the enclosing function that it uses, such as the warm-up of a schedule."""
    name = f"{function.__qualname__} {_digest(*_code(function.__code__))}"
    if function.__module__.partition(".")[0] in ("torch", "recurra"):
        name = function.__qualname__
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    values = {variable: describe(_content(cell), depth - 1) for variable, cell in cells} if depth else {}
    return {"function": name, **values} if values else name


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value yet
        return None


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant).encode()


def _sampled(data: SequenceSet) -> Iterator[bytes]:
    """All lengths and names of classes, and the values of up to 100 sequences at equal distances."""
    yield repr((data.task, data.features, data.target_names, data.classes, len(data.vocabulary))).encode()
    yield _bytes(data.lengths)
    count = min(len(data), SAMPLED_SEQUENCES)
    budget = max(2, SAMPLED_STEPS // max(count, 1))
    for index in torch.linspace(0, max(len(data) - 1, 0), count).long().tolist():
        length = int(data.lengths[index])
        yield from _both_ends(data.inputs, index, length, budget)
        yield from _both_ends(data.targets, index, length, budget) if data.per_step else [_bytes(data.targets[index])]


def _both_ends(store: Store, index: int, length: int, budget: int) -> Iterator[bytes]:
    if length <= budget:
        yield _bytes(window(store, index, 0, length))
        return
    yield _bytes(window(store, index, 0, budget // 2))
    yield _bytes(window(store, index, length - budget // 2, length))


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]
