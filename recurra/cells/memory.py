"""LSTMs with another memory: nested, projected, with a controller, or wired by a search."""

import torch
from torch import Tensor, relu, sigmoid, tanh

from .. import init
from ..cell import Cell, positive_int, register
from .lstm import Memory


@register("residual_lstm")
class ResidualLSTM(Memory):
    """Peephole LSTM whose projected memory and input are added before the output gate; equal sizes add x itself."""

    paper, year = "Kim, El-Khamy & Lee, Residual LSTM: Design of a Deep Recurrent Architecture", 2017

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        self.p_i, self.p_f, self.p_o = (self.vector() for _ in range(3))
        self.P = self.affine(hidden_size, bias=False)
        self.E = self.affine("x", bias=False) if input_size != hidden_size else None
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + self.p_i * c)
        f = sigmoid(self.f(x, h) + self.p_f * c)
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.o(x, h) + self.p_o * c)
        return o * (self.P(tanh(c)) + (x if self.E is None else self.E(x))), c


@register("mc_lstm_working_memory")
class WorkingMemoryLSTM(Memory):
    """LSTM whose gates read the memory through a matrix and a tanh: working memory connections (WMC-LSTM)."""

    paper, year = "Landi, Baraldi, Cornia & Cucchiara, Working Memory Connections for LSTM", 2021

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        self.m_i, self.m_f, self.m_o = (self.affine("c") for _ in range(3))
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h) + tanh(self.m_i(c)))
        f = sigmoid(self.f(x, h) + tanh(self.m_f(c)))
        g = tanh(self.g(x, h))
        c = f * c + i * g
        o = sigmoid(self.o(x, h) + tanh(self.m_o(c)))
        return o * tanh(c), c


@register("memory_controller_lstm")
class MemoryControllerLSTM(Cell):
    """LSTM with two output gates: one for the output, one for the control vector v that the gates read."""

    paper, year = "Memory Controller LSTM, NIPS Workshop on Time Series (Intel), in torchrecurrent as MCLSTM", 2017
    states = ("v", "c")
    keep, write, candidate, memory = ("f",), ("i",), "g", "c"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o, self.m = (self.affine("x", "v") for _ in range(5))
        init.constant_(self.f.b, 1.0)

    def step(self, x: Tensor, v: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        i = sigmoid(self.i(x, v))
        f = sigmoid(self.f(x, v))
        g = tanh(self.g(x, v))
        o = sigmoid(self.o(x, v))
        m = sigmoid(self.m(x, v))
        c = f * c + i * g
        return o * tanh(c), m * tanh(c), c


@register("nested_lstm")
class NestedLSTM(Cell):
    """LSTM whose memory is the output of an inner LSTM with the memory d."""

    paper, year = "Moniz & Krueger, Nested LSTMs", 2017
    states = ("h", "c", "d")
    keep, write, candidate, memory = ("f", "inner_f"), ("i", "inner_i"), "g", "c"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h") for _ in range(4))
        self.inner_i, self.inner_f, self.inner_g, self.inner_o = (self.affine("h", "c") for _ in range(4))
        for gate in (self.f, self.inner_f):
            init.constant_(gate.b, 1.0)

    def step(self, x: Tensor, h: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        i = sigmoid(self.i(x, h))
        f = sigmoid(self.f(x, h))
        g = tanh(self.g(x, h))
        o = sigmoid(self.o(x, h))
        u = i * g
        p = f * c
        d = sigmoid(self.inner_f(u, p)) * d + sigmoid(self.inner_i(u, p)) * tanh(self.inner_g(u, p))
        c = sigmoid(self.inner_o(u, p)) * tanh(d)
        return o * tanh(c), c, d


@register("nas")
class NAS(Cell):
    """The cell that neural architecture search found for Penn Treebank: a tree over eight products, and a memory."""

    paper, year = "Zoph & Le, Neural Architecture Search with Reinforcement Learning", 2016
    states = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a_1, self.a_2, self.a_3, self.a_5, self.a_6, self.a_7, self.a_8 = (self.affine("x", "h") for _ in range(7))
        self.p, self.q = self.affine("x"), self.affine("h", bias=False)  # multiplied in the fourth leaf of the tree

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        # The fourth leaf multiplies its products (as in TensorFlow's NASCell).
        # torchrecurrent adds them.
        u = tanh(sigmoid(self.a_1(x, h)) * relu(self.a_2(x, h)))
        v = tanh(sigmoid(self.a_3(x, h)) + relu(self.p(x) * self.q(h)))
        w = tanh(tanh(self.a_5(x, h)) * sigmoid(self.a_6(x, h)))
        z = sigmoid(tanh(self.a_7(x, h)) + sigmoid(self.a_8(x, h)))
        c = tanh(u + c) * v
        return tanh(c * tanh(w + z)), c


@register("intersection_rnn")
class IntersectionRNN(Cell):
    """RNN with two gates: one passes x on to the output, one keeps the state; other sizes project x first."""

    paper, year = "Collins, Sohl-Dickstein & Sussillo, Capacity and Trainability in Recurrent Neural Networks", 2017
    keep, candidate = ("k",), "g"

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.u, self.g, self.p, self.k = (self.affine("x", "h") for _ in range(4))
        self.E = self.affine("x", bias=False) if input_size != hidden_size else None
        init.constant_(self.k.b, 1.0)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        u = relu(self.u(x, h))
        g = tanh(self.g(x, h))
        p = sigmoid(self.p(x, h))
        k = sigmoid(self.k(x, h))
        y = p * (x if self.E is None else self.E(x)) + (1 - p) * u
        return y, k * h + (1 - k) * g


@register("elstm")
class ELSTM(Memory):
    """Extended LSTM: what step k writes is scaled by a learned number s_k; steps after `longest` share the last."""

    paper, year = "Su & Kuo, On Extended Long Short-term Memory and Dependent Bidirectional RNN", 2018

    def __init__(self, input_size: int, hidden_size: int, longest: int = 100):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h", bias=False) for _ in range(4))
        self.S, self.b = self.vector(positive_int("longest", longest), fill=1.0), self.vector()
        self.register_buffer("k", torch.arange(float(longest)))

    def step(self, x: Tensor, h: Tensor, c: Tensor, *, t: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h))
        f = sigmoid(self.f(x, h))
        g = tanh(self.g(x, h))
        o = sigmoid(self.o(x, h))
        # The paper adds one b to the memory; the authors' program has biases in the gates instead (1 for forgetting).
        s = torch.where(t.clamp(max=len(self.k) - 1.0) == self.k, self.S, 0.0).sum(-1, keepdim=True)
        c = f * c + s * i * g + self.b
        return o * tanh(c), c
