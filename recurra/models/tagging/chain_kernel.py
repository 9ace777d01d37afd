"""Linear chains on CPUs: the loops of `chain.py` as one operation of torch, compiled where there is a compiler.

`recurra::chain` gives log Σ over all paths, less the score of one path where tags are given: then it is minus the
log-likelihood of those tags. Its derivative is compiled too; the derivative of that runs on the plain loops.

An accelerator spends a chain's time on starting a handful of small operations at every step. Unless the batch is large,
the processor is done with all of it sooner (16 times, at B = 32, T = 64, K = 20 beside an H200), so it goes there.
"""

import ctypes
import functools
import os
from pathlib import Path

import torch
from torch import Tensor

from ...engine.backend import backend
from ...engine.cpu.compiler import BuildError, find_compiler, load
from ...engine.torch_modes import is_transformed
from . import chain as plain
from .chain import IGNORE, Chain

SOURCE = Path(__file__).with_name("chain.cpp")
REALS = {torch.float32: "float", torch.float64: "double"}
PAD = 16  # as in the source
WORTH_THREADS = 200_000  # multiplications below which waking threads takes longer than what they would share
WORTH_STAYING = 200_000  # multiplications a step, B K², from which an accelerator's own loop is as quick
_HOME = os.getpid()  # a forked child has none of the threads its OpenMP would wait for


class _Chain(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int64) for name in ("steps", "batch", "states", "threads")),
        *((name, ctypes.c_void_p) for name in ("emissions", "transitions", "start", "end", "lengths")),
    ]


@functools.cache
def _library(dtype: torch.dtype) -> ctypes.CDLL | None:
    if find_compiler() is None:
        return None
    try:
        library = load(f"#define REAL {REALS[dtype]}\n" + SOURCE.read_text(encoding="utf-8"))
    except BuildError:
        return None
    for name, pointers in (("chain_forward", 3), ("chain_backward", 7), ("chain_best", 2)):
        function = getattr(library, name)
        function.argtypes = [ctypes.POINTER(_Chain), *[ctypes.c_void_p] * pointers]
        function.restype = None
    return library


def suits(chain: Chain) -> bool:
    """Whether the compiled loops take this chain."""
    if backend() == "reference" or 0 in chain.emissions.shape:
        return False
    _, batch, states = chain.emissions.shape
    if chain.emissions.device.type != "cpu" and (
        chain.emissions.device.type != "cuda" or batch * states**2 >= WORTH_STAYING
    ):
        return False
    if torch.compiler.is_exporting() or torch.jit.is_tracing():
        return False
    if not torch.compiler.is_compiling() and is_transformed():
        return False
    dtypes = {part.dtype for part in chain[:4]}
    return len(dtypes) == 1 and dtypes <= set(REALS) and _available(chain.emissions.dtype)


def _available(dtype: torch.dtype) -> bool:
    return _library(dtype) is not None


_available._dynamo_marked_constant = True  # pyrefly: ignore  (what assume_constant_result sets, without importing dynamo)


def _call(chain: Chain) -> tuple[_Chain, tuple[Tensor, ...]]:
    """The chain as the library sees it, and the tensors that must outlive the call."""
    steps, batch, states = chain.emissions.shape
    held = tuple(part.detach().contiguous() for part in chain)
    heavy = steps * batch * states * states >= WORTH_THREADS and os.getpid() == _HOME
    threads = min(torch.get_num_threads(), batch) if heavy else 1
    return _Chain(steps, batch, states, threads, *(part.data_ptr() for part in held)), held


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


# ---------------------------------------------------------------------------------------------------- the operation

_INPUTS = "Tensor emissions, Tensor transitions, Tensor start, Tensor end, Tensor lengths, Tensor? tags"
torch.library.define("recurra::chain", f"({_INPUTS}) -> (Tensor, Tensor)")
torch.library.define("recurra::chain_backward", f"(Tensor g, Tensor alphas, {_INPUTS}) -> Tensor[]")
torch.library.define("recurra::chain_best", f"({_INPUTS.rpartition(',')[0]}) -> (Tensor, Tensor)")


@torch.library.impl("recurra::chain", "cpu")
def _forward(emissions, transitions, start, end, lengths, tags):
    """log Σ over all paths (less the score of the given one), (B,); and α, (T, B, K rounded up)."""
    steps, batch, states = emissions.shape
    call, _held = _call(Chain(emissions, transitions, start, end, lengths))
    alphas = emissions.new_zeros(steps, batch, -(-states // PAD) * PAD)
    values, tags = emissions.new_empty(batch), None if tags is None else tags.contiguous()
    library = _library(emissions.dtype)
    assert library is not None
    library.chain_forward(call, _pointer(tags), alphas.data_ptr(), values.data_ptr())
    return values, alphas


@torch.library.register_fake("recurra::chain")
def _(emissions, transitions, start, end, lengths, tags):
    steps, batch, states = emissions.shape
    return emissions.new_empty(batch), emissions.new_empty(steps, batch, -(-states // PAD) * PAD)


@torch.library.impl("recurra::chain_backward", "cpu")
def _backward(g, alphas, emissions, transitions, start, end, lengths, tags):
    call, _held = _call(Chain(emissions, transitions, start, end, lengths))
    found = [emissions.new_zeros(emissions.shape), *(part.new_empty(part.shape) for part in (transitions, start, end))]
    g, tags = g.contiguous(), None if tags is None else tags.contiguous()
    library = _library(emissions.dtype)
    assert library is not None
    library.chain_backward(call, _pointer(tags), alphas.data_ptr(), g.data_ptr(), *(part.data_ptr() for part in found))
    return found


@torch.library.register_fake("recurra::chain_backward")
def _(g, alphas, emissions, transitions, start, end, lengths, tags):
    return [part.new_empty(part.shape) for part in (emissions, transitions, start, end)]


@torch.library.impl("recurra::chain_best", "cpu")
def _best(emissions, transitions, start, end, lengths):
    call, _held = _call(Chain(emissions, transitions, start, end, lengths))
    paths = torch.full(emissions.shape[:2], IGNORE, dtype=torch.int64)
    values = emissions.new_empty(emissions.shape[1])
    library = _library(emissions.dtype)
    assert library is not None
    library.chain_best(call, paths.data_ptr(), values.data_ptr())
    return paths, values


@torch.library.register_fake("recurra::chain_best")
def _(emissions, transitions, start, end, lengths):
    return emissions.new_empty(emissions.shape[:2], dtype=torch.int64), emissions.new_empty(emissions.shape[1])


def _save(ctx, inputs, output) -> None:
    *parts, tags = inputs
    ctx.tagged = tags is not None
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], *parts, *([tags] if ctx.tagged else []))


def _pull(ctx, g, _):
    if g is None:
        return (None,) * 6
    alphas, *inputs = ctx.saved_tensors
    tags = inputs.pop() if ctx.tagged else None
    if torch.is_grad_enabled():  # somebody will differentiate this derivative: plain operations, which can be
        wanted = [part for part in inputs[:4] if part.requires_grad]
        value = plain_value(Chain(*inputs), tags)
        grads = iter(torch.autograd.grad(value, wanted, g, create_graph=True, allow_unused=True))
        found = [next(grads) if part.requires_grad else None for part in inputs[:4]]
    else:
        found = torch.ops.recurra.chain_backward(g, alphas, *inputs, tags)
    return *found, None, None


torch.library.register_autograd("recurra::chain", _pull, setup_context=_save)


# ---------------------------------------------------------------------------------------------------- entries


def plain_value(chain: Chain, tags: Tensor | None) -> Tensor:
    value = plain.log_partition(chain)
    return value if tags is None else value - plain.path_score(chain, tags)


def log_partition(chain: Chain, tags: Tensor | None = None) -> Tensor:
    """log Σ over all paths; with tags, less the score of theirs: minus their log-likelihood. (B,)"""
    if not suits(chain):
        return plain_value(chain, tags)
    value, _ = torch.ops.recurra.chain(*_on_host(chain), None if tags is None else tags.cpu())
    return value.to(chain.emissions.device)


def forward_scores(chain: Chain) -> Tensor:
    """α without a derivative, each step up to a constant: (T, B, K); past a sequence's end it means nothing."""
    chain = Chain(*(part.detach() for part in chain))
    if not suits(chain):
        return plain.forward_scores(chain)
    alphas = torch.ops.recurra.chain(*_on_host(chain), None)[1][..., : chain.start.shape[0]]
    return alphas.to(chain.emissions.device)


def best_path(chain: Chain) -> tuple[Tensor, Tensor]:
    """The best path of every sequence, `IGNORE` past its end, and its score."""
    chain = Chain(*(part.detach() for part in chain))
    if not suits(chain):
        return plain.best_path(chain)
    paths, values = torch.ops.recurra.chain_best(*_on_host(chain))
    return paths.to(chain.emissions.device), values.to(chain.emissions.device)


def _on_host(chain: Chain) -> Chain:
    return Chain(*(part.cpu() for part in chain))
