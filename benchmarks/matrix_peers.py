"""The cells with matrix states as flash-linear-attention and xLSTM run them: projections and gates by torch, then their
kernels. A peer takes x (B, T, D) and gives y (B, T, heads · values), with the weights of a cell of recurra."""

import functools
import math
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import elu, logsigmoid, normalize, silu, softplus

Peer = Callable[[Tensor], Tensor]
MOST_CONFIGURATIONS = 6  # of a kernel that its authors let Triton choose from, evenly taken; all compile for minutes


def peers(name: str, cell: Any, train: bool) -> dict[str, Peer]:
    """Kernel → the peer, of those that are installed and have the pass."""
    _thin_out_configurations()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import fla.ops as ops
    except ImportError:
        ops = None
    found: dict[str, Peer] = {}
    if name == "mlstm":
        return _xlstm(cell)
    if ops is None or name not in INPUTS:
        return found
    inputs, kernel = INPUTS[name]
    for way in ("fused_recurrent", "chunk"):
        if train and (name, way) == ("gated_delta_net", "fused_recurrent"):
            continue  # it has no backward pass
        run = getattr(ops, f"{way}_{kernel}", None)
        if run is not None:
            found[f"{way}_{kernel}"] = functools.partial(_run, run, inputs, cell)
    return found


@functools.cache
def _thin_out_configurations() -> None:
    """Let Triton's autotuner try few configurations of a kernel, for a few milliseconds each."""
    import triton
    from triton.runtime.autotuner import Autotuner

    make = Autotuner.__init__

    def made(tuner: Any, function: Any, names: Any, configurations: list, *args: Any, **options: Any) -> None:
        step = -(-len(configurations) // MOST_CONFIGURATIONS) or 1
        make(tuner, function, names, configurations[::step], *args, **options)
        tuner.do_bench = functools.partial(triton.testing.do_bench, warmup=2, rep=8)

    Autotuner.__init__ = made


def _run(kernel: Callable, inputs: Callable, cell: Any, x: Tensor) -> Tensor:
    given, options = inputs(cell, x)
    return kernel(*(value.contiguous() for value in given), **options)[0].to(x.dtype).flatten(2)


def _linear(cell: Any, x: Tensor) -> tuple:
    q, k = (cell.by_head(elu(project(x)) + 1) for project in (cell.q, cell.k))
    return (q, k, cell.by_head(cell.v(x))), {"normalize": True, "scale": 1.0}


def _delta(cell: Any, x: Tensor) -> tuple:
    features = (cell.by_head(elu(project(x)) + 1) for project in (cell.q, cell.k))
    q, k = (value / value.sum(-1, keepdim=True) for value in features)
    return (q, k, cell.by_head(cell.v(x)), torch.sigmoid(cell.b(x))), {"scale": 1.0}


def _gated_delta(cell: Any, x: Tensor) -> tuple:
    q, k = (normalize(cell.by_head(silu(project(x))), dim=-1) for project in (cell.q, cell.k))
    decay = -cell.log_rate.exp() * softplus(cell.a(x))
    named = {"g": decay.float().contiguous(), "beta": torch.sigmoid(cell.b(x)).contiguous()}
    return (q, k, cell.by_head(silu(cell.v(x)))), named | {"scale": cell.keys**-0.5}


def _gla(cell: Any, x: Tensor) -> tuple:
    q, k, v = (cell.by_head(project(x)) for project in (cell.q, cell.k, cell.v))
    return (q, k, v, cell.by_head(logsigmoid(cell.a(cell.low(x))) / cell.temperature)), {"scale": cell.keys**-0.5}


def _retention(cell: Any, x: Tensor) -> tuple:
    angle = torch.arange(x.shape[1], device=x.device)[:, None] * cell.theta.float()
    cos, sin = (f(angle).to(x.dtype)[None, :, None] for f in (torch.cos, torch.sin))

    def turned(value: Tensor) -> Tensor:
        one, other = value.chunk(2, -1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)

    q, k = (turned(cell.by_head(project(x))) for project in (cell.q, cell.k))
    return (q, k, cell.by_head(cell.v(x))), {}


def _shifted(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1) - x


def _rwkv6(cell: Any, x: Tensor) -> tuple:
    d = _shifted(x)
    z = x + d * cell.mu

    def mixed(name: str) -> Tensor:
        return x + d * getattr(cell, f"mix_{name}")(torch.tanh(getattr(cell, f"low_{name}")(z)))

    q, k, v = (cell.by_head(getattr(cell, name)(mixed(name))) for name in "qkv")
    w = cell.by_head(-torch.exp(cell.w(torch.tanh(cell.low(mixed("w"))))))
    return (q, k, v, w, cell.u), {"scale": cell.keys**-0.5}


def _rwkv7(cell: Any, x: Tensor) -> tuple:
    d = _shifted(x)
    mixed = {name: x + d * getattr(cell, f"mu_{name}") for name in "qkvwa"}
    q, v = cell.by_head(cell.q(mixed["q"])), cell.by_head(cell.v(mixed["v"]))
    key = cell.k(mixed["k"])
    w = cell.by_head(-math.exp(-0.5) * torch.sigmoid(cell.w(torch.tanh(cell.low_w(mixed["w"])))))
    a = torch.sigmoid(cell.a(cell.low_a(mixed["a"])))
    r = normalize(cell.by_head(key * cell.removal), dim=-1)
    k = cell.by_head(key * (1 + (a - 1) * cell.replacement))
    return (q, w, k, v, -r, cell.by_head(a) * r), {"scale": 1.0}


INPUTS: dict[str, tuple[Callable, str]] = {
    "linear_transformer": (_linear, "linear_attn"),
    "delta_net": (_delta, "delta_rule"),
    "gated_delta_net": (_gated_delta, "gated_delta_rule"),
    "gla": (_gla, "gla"),
    "retention": (_retention, "retention"),
    "rwkv6": (_rwkv6, "rwkv6"),
    "rwkv7": (_rwkv7, "rwkv7"),
}


def _xlstm(cell: Any) -> dict[str, Peer]:
    try:
        from mlstm_kernels.torch import get_mlstm_kernel
    except ImportError:
        return {}
    if version("triton").startswith("3.6."):  # whose LLVM ends the process on this kernel
        return {}
    name = "chunkwise--triton_xl_chunk"
    kernel = get_mlstm_kernel(name)

    def run(x: Tensor) -> Tensor:
        q, k, v = (cell.by_head(project(x)).transpose(1, 2).contiguous() for project in (cell.q, cell.k, cell.v))
        i, f = (gate(x).transpose(1, 2).contiguous() for gate in (cell.i, cell.f))
        return torch.sigmoid(cell.o(x)) * kernel(q, k, v, i, f).transpose(1, 2).flatten(2)

    return {f"xlstm {name}": run}
