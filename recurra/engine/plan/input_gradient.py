"""The gradient of x as a program: what the backward loop stored of it, and products of the weights with δ of all steps.

Its rows do not depend on each other, so that an engine runs it on as many at once as it likes.
"""

from ..ir.buffers import D_X, BufferKind, BufferSpec, X
from ..ir.nodes import Node, flip_matrix
from .program import Out, Plan, Program


def input_gradient(plan: Plan) -> Program | None:
    """None if there are no products with x, or if they, or the loop, leave out some of its columns."""
    assert plan.backward is not None
    width, builder = plan.forward.buffers[X].width, plan.forward.builder
    products = [product for product in plan.products if product.operand.buffer == X]
    if not products or any(product.matrix.deep != width for product in products):
        return None
    terms: list[Node] = []
    stored = sum(out.node.width for out in plan.backward.outs if out.buffer == D_X)
    if stored:
        terms.append(builder.load(D_X, width))
    for product in products:
        delta = builder.load(product.delta.buffer, product.delta.width, offset=product.delta.offset)
        terms.append(builder.product(delta, flip_matrix(product.matrix)))
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    buffers = plan.backward.buffers | {D_X: BufferSpec(width, BufferKind.PER_STEP)}
    return Program(builder, [Out(D_X, 0, total)], [], buffers) if stored in (0, width) else None
