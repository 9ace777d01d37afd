"""Compiled linear chains for CPUs: the loops of `chain.py` as one torch operation with its derivative.

`recurra::chain` returns the log-sum over all paths, minus the score of one path if tags are given: the negative
log-likelihood of those tags. Its derivative is compiled too; second derivatives run on the loops of `chain.py`. Without
a compiler, everything does.

On a GPU a chain is a handful of small kernels per step, and launching them dominates. Unless the batch is large,
tensors are copied to the CPU: 16 times faster at B = 32, T = 64, K = 20 than on an H200.
"""

import ctypes
import functools
import os
from pathlib import Path

import torch
from torch import Tensor

from ...engine.backend import backend
from ...engine.cpu.compiler import BuildError, find_compiler, load
from ...engine.graph_constants import graph_constant
from ...engine.torch_modes import is_exporting, is_transformed
from . import chain as reference
from .chain import IGNORE, Chain

SOURCE = Path(__file__).with_name("chain.cpp")
REALS = {torch.float32: "float", torch.float64: "double"}
PAD = 16  # as in chain.cpp
WORTH_THREADS = 200_000  # multiplications from which several threads pay off
WORTH_STAYING = 200_000  # multiplications per step, B K², from which the loop on the GPU is as fast
_HOME = os.getpid()  # a forked child lacks OpenMP's threads and runs on one


class _ChainArguments(ctypes.Structure):
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
        function.argtypes = [ctypes.POINTER(_ChainArguments), *[ctypes.c_void_p] * pointers]
        function.restype = None
    return library


def is_supported(chain: Chain) -> bool:
    """Whether the compiled loops can run this chain."""
    if backend() == "reference" or 0 in chain.emissions.shape:
        return False
    _, batch, states = chain.emissions.shape
    if chain.emissions.device.type != "cpu" and (
        chain.emissions.device.type != "cuda" or batch * states**2 >= WORTH_STAYING
    ):
        return False
    if is_exporting():
        return False
    if not torch.compiler.is_compiling() and is_transformed():
        return False
    dtypes = {part.dtype for part in chain[:4]}
    return len(dtypes) == 1 and dtypes <= set(REALS) and _available(chain.emissions.dtype)


@graph_constant
def _available(dtype: torch.dtype) -> bool:
    return _library(dtype) is not None


def _arguments(chain: Chain) -> tuple[_ChainArguments, tuple[Tensor, ...]]:
    """The argument block of the C call, and the tensors that must outlive it."""
    steps, batch, states = chain.emissions.shape
    held = tuple(part.detach().contiguous() for part in chain)
    heavy = steps * batch * states * states >= WORTH_THREADS and os.getpid() == _HOME
    threads = min(torch.get_num_threads(), batch) if heavy else 1
    return _ChainArguments(steps, batch, states, threads, *(part.data_ptr() for part in held)), held


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


# ---------------------------------------------------------------------------------------------------- the operation

_INPUTS = "Tensor emissions, Tensor transitions, Tensor start, Tensor end, Tensor lengths, Tensor? tags"
torch.library.define("recurra::chain", f"({_INPUTS}) -> (Tensor, Tensor)")
torch.library.define("recurra::chain_backward", f"(Tensor g, Tensor alphas, {_INPUTS}) -> Tensor[]")
torch.library.define("recurra::chain_best", f"({_INPUTS.rpartition(',')[0]}) -> (Tensor, Tensor)")


@torch.library.impl("recurra::chain", "cpu")
def _forward(emissions, transitions, start, end, lengths, tags):
    """The log-sum over all paths (minus the score of the given one), (B,); and α, (T, B, K rounded up)."""
    steps, batch, states = emissions.shape
    call, _held = _arguments(Chain(emissions, transitions, start, end, lengths))
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
    call, _held = _arguments(Chain(emissions, transitions, start, end, lengths))
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
    call, _held = _arguments(Chain(emissions, transitions, start, end, lengths))
    paths = torch.full(emissions.shape[:2], IGNORE, dtype=torch.int64)
    values = emissions.new_empty(emissions.shape[1])
    library = _library(emissions.dtype)
    assert library is not None
    library.chain_best(call, paths.data_ptr(), values.data_ptr())
    return paths, values


@torch.library.register_fake("recurra::chain_best")
def _(emissions, transitions, start, end, lengths):
    return emissions.new_empty(emissions.shape[:2], dtype=torch.int64), emissions.new_empty(emissions.shape[1])


def _save_for_backward(ctx, inputs, output) -> None:
    *parts, tags = inputs
    ctx.tagged = tags is not None
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[1], *parts, *([tags] if ctx.tagged else []))


def _chain_autograd(ctx, g, _):
    if g is None:
        return (None,) * 6
    alphas, *inputs = ctx.saved_tensors
    tags = inputs.pop() if ctx.tagged else None
    if torch.is_grad_enabled():  # with create_graph: torch operations, which are differentiable
        differentiable = [part for part in inputs[:4] if part.requires_grad]
        value = reference_value(Chain(*inputs), tags)
        grads = iter(torch.autograd.grad(value, differentiable, g, create_graph=True, allow_unused=True))
        found = [next(grads) if part.requires_grad else None for part in inputs[:4]]
    else:
        found = torch.ops.recurra.chain_backward(g, alphas, *inputs, tags)
    return *found, None, None


torch.library.register_autograd("recurra::chain", _chain_autograd, setup_context=_save_for_backward)


# ---------------------------------------------------------------------------------------------------- functions


def reference_value(chain: Chain, tags: Tensor | None) -> Tensor:
    """`log_partition` on the loops of `chain.py`."""
    value = reference.log_partition(chain)
    return value if tags is None else value - reference.path_score(chain, tags)


def log_partition(chain: Chain, tags: Tensor | None = None) -> Tensor:
    """The log-sum over all paths; with tags, their negative log-likelihood: (B,)."""
    if not is_supported(chain):
        return reference_value(chain, tags)
    value, _ = torch.ops.recurra.chain(*_on_host(chain), None if tags is None else tags.cpu())
    return value.to(chain.emissions.device)


def forward_scores(chain: Chain) -> Tensor:
    """α without a derivative, each step up to a constant: (T, B, K); undefined past the end of a sequence."""
    chain = Chain(*(part.detach() for part in chain))
    if not is_supported(chain):
        return reference.forward_scores(chain)
    alphas = torch.ops.recurra.chain(*_on_host(chain), None)[1][..., : chain.start.shape[0]]
    return alphas.to(chain.emissions.device)


def best_path(chain: Chain) -> tuple[Tensor, Tensor]:
    """The best path of every sequence, `IGNORE` past its end, and its score."""
    chain = Chain(*(part.detach() for part in chain))
    if not is_supported(chain):
        return reference.best_path(chain)
    paths, values = torch.ops.recurra.chain_best(*_on_host(chain))
    return paths.to(chain.emissions.device), values.to(chain.emissions.device)


def _on_host(chain: Chain) -> Chain:
    return Chain(*(part.cpu() for part in chain))
