"""flash-linear-attention's naive recurrences and xLSTM's step as oracles of the cells with a matrix memory.

Both compute in single precision, whatever they are given.
"""

import math
import warnings

import pytest
import torch
from cases import Case, draw_inputs
from helpers import compare, runs
from torch import Tensor
from torch.nn.functional import elu, logsigmoid, normalize, silu, softplus

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # without a card it says so
    from fla.ops.delta_rule.naive import delta_rule_recurrence
    from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
    from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
    from fla.ops.gla.naive import naive_recurrent_gla
    from fla.ops.linear_attn.naive import naive_recurrent_linear_attn
    from fla.ops.retention.naive import naive_retention
    from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
from mlstm_kernels.torch.recurrent.native_step import mlstm_recurrent_step__native_fw

pytestmark = pytest.mark.slow  # their import takes seconds
SINGLE = 2e-5


def heads(cell, value: Tensor) -> Tensor:
    """(T, B, heads · n) → (B, T, heads, n)."""
    return cell.by_head(value).transpose(0, 1)


def by_head_first(*values: Tensor) -> list[Tensor]:
    """(B, T, heads, n) → (B, heads, T, n)."""
    return [value.transpose(1, 2) for value in values]


def in_time(y: Tensor, heads_first: bool = False) -> Tensor:
    """(B, T, heads, n) → (T, B, heads · n)."""
    return (y.transpose(1, 2) if heads_first else y).transpose(0, 1).flatten(2)


def agrees(name: str, oracle, **options: object) -> None:
    """The same outputs and gradients of x from the start."""
    case = Case(name, {"heads": 2, **options})
    cell = case.cell()
    compare(
        lambda x: runs(cell)(x)[0], lambda x: oracle(cell, x).double(), draw_inputs(case, steps=9), tolerance=SINGLE
    )


def test_linear_transformer_is_flas_linear_attention():
    def oracle(cell, x: Tensor) -> Tensor:
        q, k = (heads(cell, elu(project(x)) + 1) for project in (cell.q, cell.k))
        return in_time(naive_recurrent_linear_attn(q, k, heads(cell, cell.v(x)), normalize=True)[0])

    agrees("linear_transformer", oracle, key_size=3)


def test_delta_net_is_flas_delta_rule():
    def oracle(cell, x: Tensor) -> Tensor:
        features = (heads(cell, elu(project(x)) + 1) for project in (cell.q, cell.k))
        q, k = (value / value.sum(-1, keepdim=True) for value in features)
        q, k, v, beta = by_head_first(q, k, heads(cell, cell.v(x)), heads(cell, torch.sigmoid(cell.b(x))))
        return in_time(delta_rule_recurrence(q * math.sqrt(cell.keys), k, v, beta)[0], heads_first=True)

    agrees("delta_net", oracle, key_size=3)


def test_gated_delta_net_is_flas_gated_delta_rule():
    def oracle(cell, x: Tensor) -> Tensor:
        q, k = (normalize(heads(cell, silu(project(x))), dim=-1) for project in (cell.q, cell.k))
        decay = -cell.log_rate.exp() * softplus(cell.a(x))
        beta = torch.sigmoid(cell.b(x))
        v = heads(cell, silu(cell.v(x)))
        return in_time(naive_recurrent_gated_delta_rule(q, k, v, beta.transpose(0, 1), decay.transpose(0, 1))[0])

    agrees("gated_delta_net", oracle)


def test_gla_is_flas():
    def oracle(cell, x: Tensor) -> Tensor:
        q, k, v = (heads(cell, project(x)) for project in (cell.q, cell.k, cell.v))
        decay = heads(cell, logsigmoid(cell.a(cell.low(x))) / cell.temperature)
        return in_time(naive_recurrent_gla(q, k, v, decay)[0])

    agrees("gla", oracle, key_size=3)


def test_retention_is_flas_on_keys_that_turned():
    def oracle(cell, x: Tensor) -> Tensor:
        angle = torch.arange(len(x), dtype=x.dtype)[:, None] * cell.theta  # (T, pairs)

        def turned(value: Tensor) -> Tensor:  # as complex numbers
            one, other = value.chunk(2, -1)
            both = torch.complex(one, other) * torch.polar(torch.ones_like(angle), angle)[None, :, None]
            return torch.cat([both.real, both.imag], -1)

        q, k = (turned(heads(cell, project(x))) for project in (cell.q, cell.k))
        return in_time(naive_retention(*by_head_first(q, k, heads(cell, cell.v(x)))), heads_first=True)

    agrees("retention", oracle, key_size=4)


def shifted(x: Tensor) -> Tensor:
    """The input of the step before, minus this one's."""
    return torch.cat([torch.zeros_like(x[:1]), x[:-1]]) - x


def test_rwkv6_is_flas():
    def oracle(cell, x: Tensor) -> Tensor:
        d = shifted(x)
        z = x + d * cell.mu

        def mixed(name: str) -> Tensor:
            return x + d * getattr(cell, f"mix_{name}")(torch.tanh(getattr(cell, f"low_{name}")(z)))

        q, k, v = (heads(cell, getattr(cell, name)(mixed(name))) for name in "qkv")
        w = heads(cell, -torch.exp(cell.w(torch.tanh(cell.low(mixed("w"))))))
        return in_time(naive_recurrent_rwkv6(*by_head_first(q, k, v, w), cell.u)[0], heads_first=True)

    agrees("rwkv6", oracle, rank=2)


def test_rwkv7_is_flas_diagonal_plus_low_rank():
    def oracle(cell, x: Tensor) -> Tensor:
        d = shifted(x)
        mixed = {name: x + d * getattr(cell, f"mu_{name}") for name in "qkvwa"}
        q, v = heads(cell, cell.q(mixed["q"])), heads(cell, cell.v(mixed["v"]))
        key = cell.k(mixed["k"])
        w = heads(cell, -math.exp(-0.5) * torch.sigmoid(cell.w(torch.tanh(cell.low_w(mixed["w"])))))
        a = torch.sigmoid(cell.a(cell.low_a(mixed["a"])))
        r = normalize(heads(cell, key * cell.removal), dim=-1)
        k = heads(cell, key * (1 + (a - 1) * cell.replacement))
        parts = by_head_first(q * math.sqrt(cell.keys), k, v, -r, heads(cell, a) * r, w)
        return in_time(dplr_recurrence(*(part.float() for part in parts))[0], heads_first=True)

    agrees("rwkv7", oracle, key_size=3, rank=2)


def test_mlstm_is_xlstms():
    """Theirs adds 1e-6 to the denominator, and scales the query instead of the key."""

    def oracle(cell, x: Tensor) -> Tensor:
        batch = x.shape[1]
        C, n = x.new_zeros(batch, cell.heads, cell.keys, cell.values), x.new_zeros(batch, cell.heads, cell.keys)
        m, outputs = x.new_zeros(batch, cell.heads, 1), []
        for x_t in x:
            q, k, v = (cell.by_head(project(x_t)) for project in (cell.q, cell.k, cell.v))
            i, f = (gate(x_t).unsqueeze(-1) for gate in (cell.i, cell.f))
            h, (C, n, m) = mlstm_recurrent_step__native_fw(C, n, m, q, k, v, i, f, dtype_state=torch.float64)
            outputs.append(torch.sigmoid(cell.o(x_t)) * h.flatten(1))
        return torch.stack(outputs)

    agrees("mlstm", oracle, key_size=3)
