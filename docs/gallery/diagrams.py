"""
Cells side by side
==================

Diagrams drawn from the equations: the step of every cell is traced, and the drawing follows the trace. Boxes are matrix
products with their activation, circles are elementwise operations, thick lines are states that pass without a product.
"""

import recurra as rc

cells = ("rnn", "lstm", "gru", "mgu", "janet", "min_gru", "lem", "scrn")
rc.inspect.side_by_side({name: rc.diagram(name) for name in cells})

# %%
# A cell of your own is drawn in the same way.
import torch


class Slow(rc.Cell):
    """A memory that follows a fast state."""

    states = ("h", "slow")

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.a, self.g = self.affine("x", "h", "slow"), self.affine("x", "h")

    def step(self, x, h, slow):
        h = torch.tanh(self.a(x, h, slow))
        return h, torch.lerp(slow, h, 0.1 * torch.sigmoid(self.g(x, h)))


rc.inspect.side_by_side({"Slow": rc.diagram(Slow), "three steps of a layer": rc.diagram(rc.Recurrent(Slow, 4, 8))})
