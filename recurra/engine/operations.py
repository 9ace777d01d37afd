"""The operations that a step may consist of, one table row each: its kind, and how it prints in LaTeX.

`MEANING` maps each torch operation a traced step may hold to its kind and its LaTeX template. `DECOMPOSITIONS` rewrites
composite functions (softplus, layer_norm, …) as elementary operations.
"""

from dataclasses import dataclass

import torch
from torch import fx
from torch._decomp import get_decompositions

from ..cells import surrogates  # noqa: F401  defines recurra::spike
from .literals import literal

aten = torch.ops.aten

# LaTeX binding strength of a printed expression: a weaker one is put in parentheses inside a stronger one.
SUM, PRODUCT, ATOM = 1, 2, 3


@dataclass(frozen=True)
class Operation:
    """One torch operation: its kind, and how it prints."""

    kind: str  # "elementwise", "product", "row" (reduces the feature axis), "layout" (moves numbers), "complex"
    latex: str = ""  # `{0}`, `{1}` are the operands
    binds: int = ATOM  # the binding strength of the printed result
    inside: int = 0  # an operand that binds less is put in parentheses


def _function(name: str) -> Operation:
    return Operation("elementwise", name + r"\left({0}\right)")


MEANING: dict[object, Operation] = {
    aten.linear.default: Operation("product", r"{1}\,{0}", PRODUCT, ATOM),
    aten.mm.default: Operation("product", r"{0}\,{1}", PRODUCT, ATOM),
    aten.bmm.default: Operation("product", r"{0}\,{1}", PRODUCT, ATOM),
    aten.add.Tensor: Operation("elementwise", "{0} + {1}", SUM, SUM),
    aten.add.Scalar: Operation("elementwise", "{0} + {1}", SUM, SUM),
    aten.sub.Tensor: Operation("elementwise", "{0} - {1}", SUM, PRODUCT),
    aten.sub.Scalar: Operation("elementwise", "{0} - {1}", SUM, PRODUCT),
    aten.rsub.Scalar: Operation("elementwise", "{1} - {0}", SUM, PRODUCT),
    aten.mul.Tensor: Operation("elementwise", r"{0} \odot {1}", PRODUCT, PRODUCT),
    aten.mul.Scalar: Operation("elementwise", r"{1}\,{0}", PRODUCT, PRODUCT),
    aten.div.Tensor: Operation("elementwise", r"\frac{{{0}}}{{{1}}}"),
    aten.div.Scalar: Operation("elementwise", r"\frac{{{0}}}{{{1}}}"),
    aten.neg.default: Operation("elementwise", "-{0}", SUM, PRODUCT),
    aten.reciprocal.default: Operation("elementwise", r"\frac{{1}}{{{0}}}"),
    aten.sigmoid.default: _function(r"\sigma"),
    aten.tanh.default: _function(r"\tanh"),
    aten.relu.default: _function(r"\mathrm{{relu}}"),
    aten.exp.default: _function(r"\exp"),
    aten.expm1.default: _function(r"\mathrm{{expm1}}"),
    aten.log.default: _function(r"\log"),
    aten.log1p.default: _function(r"\mathrm{{log1p}}"),
    aten.sin.default: _function(r"\sin"),
    aten.cos.default: _function(r"\cos"),
    aten.softplus.default: _function(r"\mathrm{{softplus}}"),
    aten.log_sigmoid_forward.default: _function(r"\log\sigma"),
    aten.silu.default: _function(r"\mathrm{{silu}}"),
    aten.gelu.default: _function(r"\mathrm{{gelu}}"),
    aten.elu.default: _function(r"\mathrm{{elu}}"),
    aten.leaky_relu.default: _function(r"\mathrm{{leaky\_relu}}"),
    aten.sign.default: _function(r"\mathrm{{sign}}"),
    aten.sgn.default: _function(r"\mathrm{{sign}}"),
    aten.sqrt.default: Operation("elementwise", r"\sqrt{{{0}}}"),
    aten.rsqrt.default: Operation("elementwise", r"\frac{{1}}{{\sqrt{{{0}}}}}"),
    aten.abs.default: Operation("elementwise", r"\left|{0}\right|"),
    aten.pow.Tensor_Scalar: Operation("elementwise", "{0}^{{{1}}}", ATOM, ATOM),
    aten.isnan.default: Operation("elementwise", r"{0} = \mathrm{{NaN}}", SUM, SUM),
    aten.remainder.Scalar: Operation("elementwise", r"{0}\ \mathrm{{mod}}\ {1}", SUM, PRODUCT),
    aten.remainder.Tensor: Operation("elementwise", r"{0}\ \mathrm{{mod}}\ {1}", SUM, PRODUCT),
    aten.maximum.default: Operation("elementwise", r"\max\left({0}, {1}\right)"),
    aten.minimum.default: Operation("elementwise", r"\min\left({0}, {1}\right)"),
    aten.clamp.default: Operation("elementwise", r"\mathrm{{clip}}\left({0}\right)"),
    aten.clamp_min.default: Operation("elementwise", r"\max\left({0}, {1}\right)"),
    aten.linalg_vector_norm.default: Operation("row", r"\mathrm{{norm}}\left({0}\right)"),
    aten.where.self: Operation("elementwise", r"\left({1}\ \mathrm{{if}}\ {0}\ \mathrm{{else}}\ {2}\right)"),
    aten.masked_fill.Scalar: Operation("elementwise", r"\left({2}\ \mathrm{{if}}\ {1}\ \mathrm{{else}}\ {0}\right)"),
    aten.eq.Scalar: Operation("elementwise", "{0} = {1}", SUM, SUM),
    aten.ne.Scalar: Operation("elementwise", r"{0} \neq {1}", SUM, SUM),
    aten.lt.Scalar: Operation("elementwise", "{0} < {1}", SUM, SUM),
    aten.le.Scalar: Operation("elementwise", r"{0} \leq {1}", SUM, SUM),
    aten.gt.Scalar: Operation("elementwise", "{0} > {1}", SUM, SUM),
    aten.ge.Scalar: Operation("elementwise", r"{0} \geq {1}", SUM, SUM),
    aten.eq.Tensor: Operation("elementwise", "{0} = {1}", SUM, SUM),
    aten.lt.Tensor: Operation("elementwise", "{0} < {1}", SUM, SUM),
    aten.le.Tensor: Operation("elementwise", r"{0} \leq {1}", SUM, SUM),
    aten.gt.Tensor: Operation("elementwise", "{0} > {1}", SUM, SUM),
    aten.ge.Tensor: Operation("elementwise", r"{0} \geq {1}", SUM, SUM),
    aten.logical_and.default: Operation("elementwise", r"{0} \wedge {1}", SUM, SUM),
    aten.logical_or.default: Operation("elementwise", r"{0} \vee {1}", SUM, SUM),
    aten.logical_not.default: Operation("elementwise", r"\neg {0}", PRODUCT, ATOM),
    torch.ops.recurra.spike.default: _function(r"\Theta"),
    aten.sum.dim_IntList: Operation("row", r"\textstyle\sum {0}", SUM, PRODUCT),
    aten._softmax.default: Operation("row", r"\mathrm{{softmax}}\left({0}\right)"),
    aten.amax.default: Operation("row", r"\max\left({0}\right)"),
    aten.mean.dim: Operation("row", r"\mathrm{{mean}}\left({0}\right)"),
    aten.var.correction: Operation("row", r"\mathrm{{var}}\left({0}\right)"),
    aten.native_layer_norm.default: Operation("row", r"\mathrm{{LN}}\left({0}\right)"),
    aten.cat.default: Operation("layout", r"\left[{0}\right]"),
    aten.split.Tensor: Operation("layout", "{0}"),
    aten.slice.Tensor: Operation("layout", "{0}"),
    aten.t.default: Operation("layout", r"{0}^\top", ATOM, ATOM),
    aten.transpose.int: Operation("layout", r"{0}^\top", ATOM, ATOM),
    aten.unsqueeze.default: Operation("layout", "{0}", ATOM, ATOM),
    aten.squeeze.dim: Operation("layout", "{0}", ATOM, ATOM),
    aten.expand.default: Operation("layout", "{0}", ATOM, ATOM),
    aten.view.default: Operation("layout", "{0}", ATOM, ATOM),
    aten._unsafe_view.default: Operation("layout", "{0}", ATOM, ATOM),
    aten.clone.default: Operation("layout", "{0}", ATOM, ATOM),
    aten.detach.default: Operation("layout", r"\mathrm{{stop}}\left({0}\right)"),  # no gradient flows through it
    aten.alias.default: Operation("layout", "{0}", ATOM, ATOM),
    aten.index.Tensor: Operation("layout", r"\Pi\,{0}", PRODUCT, ATOM),
    aten.full_like.default: Operation("layout", "{1}"),
    aten.zeros_like.default: Operation("layout", "0"),
    aten.new_zeros.default: Operation("layout", "0"),
    aten.ones_like.default: Operation("layout", "1"),
    aten.scalar_tensor.default: Operation("layout", "{0}"),
    literal: Operation("layout", r"\left[{0}\right]"),
    aten.sym_size.int: Operation("layout"),
    aten.linalg_matrix_exp.default: _function(r"\exp"),
    aten.block_diag.default: Operation("layout", r"\mathrm{{diag}}\left({0}\right)"),
    aten.eye.default: Operation("layout", "I"),
    aten.complex.default: Operation("complex", r"{0} + \mathrm{{i}}\,{1}", SUM, PRODUCT),
    aten.view_as_real.default: Operation("complex", "{0}", ATOM, ATOM),
    aten.view_as_complex.default: Operation("complex", "{0}", ATOM, ATOM),
    aten.real.default: Operation("complex", r"\mathrm{{Re}}\left({0}\right)"),
    aten.imag.default: Operation("complex", r"\mathrm{{Im}}\left({0}\right)"),
    aten.select.int: Operation("complex", r"\left[{0}\right]_{{{2}}}"),
    aten.polar.default: Operation("complex", r"e^{{\mathrm{{i}}\,{1}}}"),
    aten._conj.default: Operation("complex", r"\overline{{{0}}}"),
    aten._fft_c2c.default: Operation("complex", r"\mathcal{{F}}\,{0}", PRODUCT, ATOM),
}

DECOMPOSITIONS = get_decompositions(
    [
        aten.addmm,
        aten.rsub,
        aten.softplus,
        aten.log_sigmoid_forward,
        aten.silu,
        aten.gelu,
        aten.elu,
        aten.leaky_relu,
        aten.hardtanh,
        aten.native_layer_norm,
        aten._softmax,
    ]
)


BATCH_AXIS = "batch axis"  # meta key of a node: the axis of its value with one row per sequence, or None


def product_of(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """`(operand, weight)` if the node multiplies each row of a batch by a weight: `W v`."""
    if node.target not in (aten.linear.default, aten.mm.default):
        return None
    operand, weight = node.args[:2]
    changes = operand.meta.get(BATCH_AXIS, 0), weight.meta.get(BATCH_AXIS)  # pyrefly: ignore
    return (operand, weight) if changes == (0, None) else None  # pyrefly: ignore


def is_other_product(node: fx.Node) -> bool:
    """Whether the node multiplies a batch by a weight in a form that `product_of` does not take."""
    if node.target not in _PRODUCTS or product_of(node) is not None:
        return False
    axes = {value.meta.get(BATCH_AXIS) for value in node.args[-2:]}  # pyrefly: ignore
    return None in axes and len(axes) > 1


_PRODUCTS = {aten.linear.default, aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}
