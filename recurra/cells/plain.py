"""Simple recurrent networks, which differ in the recurrent matrix (survey sections 2 and 3.1)."""

from torch import Tensor, nn, relu, tanh

from .. import init
from ..cell import Cell, positive_int, register
from ..errors import InputError
from .activations import Activation, activation
from .derivations import Orthogonal, rotation_generator


@register("rnn", "elman")
class RNN(Cell):
    """Simple recurrent network, also known as Elman network or vanilla RNN: h = φ(W h + U x + b)."""

    paper, year = "Rumelhart, Hinton & Williams, Learning Internal Representations by Error Propagation", 1986

    def __init__(self, input_size: int, hidden_size: int, nonlinearity: str | Activation = "tanh"):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.nonlinearity = activation(nonlinearity)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.nonlinearity(self.a(x, h))


@register("jordan_rnn", "jordan")
class JordanRNN(Cell):
    """Jordan network: its output, added to a decaying trace of earlier outputs, is fed back in place of the state."""

    paper, year = "Jordan, Attractor Dynamics and Parallelism in a Connectionist Sequential Machine", 1986
    states = ("y", "s")

    def __init__(self, input_size: int, hidden_size: int, output_size: int | None = None, decay: float = 0.5):
        output_size = hidden_size if output_size is None else positive_int("output_size", output_size)
        if not 0 <= decay < 1:
            raise InputError("decay", decay, "a number from 0 up to, but not including, 1")
        super().__init__(input_size, hidden_size, sizes={"y": output_size, "s": output_size})
        self.a = self.affine("x", "s")
        self.out = self.affine(hidden_size, size=output_size)
        self.decay = decay

    def step(self, x: Tensor, y: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        s = self.decay * s + y
        h = tanh(self.a(x, s))
        return tanh(self.out(h)), s


@register("identity_rnn")
class IdentityRNN(Cell):
    """RNN whose recurrent matrix starts close to the identity, so that it remembers from the start."""

    paper, year = "Mikolov et al., Learning Longer Memory in Recurrent Neural Networks", 2015

    def __init__(self, input_size: int, hidden_size: int, scale: float = 0.95, noise: float = 1e-3):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        init.identity_(self.a.W, scale, noise)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h))


@register("irnn")
class IRNN(Cell):
    """RNN with ReLU whose recurrent matrix starts at the identity."""

    paper, year = "Le, Jaitly & Hinton, A Simple Way to Initialize Recurrent Networks of Rectified Linear Units", 2015

    def __init__(self, input_size: int, hidden_size: int, scale: float = 1.0):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        init.identity_(self.a.W, scale)
        init.normal_(self.a.U, 1e-3)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return relu(self.a(x, h))


@register("orthogonal_rnn")
class OrthogonalRNN(Cell):
    """RNN whose recurrent matrix is orthogonal, and stays so in training; its determinant, 1 or -1, is chosen."""

    paper, year = "Arjovsky, Shah & Bengio, Unitary Evolution Recurrent Neural Networks (real case)", 2016

    def __init__(
        self, input_size: int, hidden_size: int, nonlinearity: str | Activation = "tanh", determinant: int = 1
    ):
        super().__init__(input_size, hidden_size)
        if determinant not in (1, -1):
            raise InputError("determinant", determinant, "1, a rotation, or -1, a rotation and a reflection")
        self.a = self.affine("x", "h")
        self.a.derive("W", Orthogonal(determinant == -1), raw=nn.Parameter(rotation_generator(hidden_size)))
        self.nonlinearity = activation(nonlinearity)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.nonlinearity(self.a(x, h))


@register("residual_rnn")
class ResidualRNN(Cell):
    """RNN with the previous state added before the activation: W + I in place of W."""

    paper, year = "Hu et al., Overcoming the Vanishing Gradient Problem in Plain Recurrent Networks (tanh form)", 2018

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        init.normal_(self.a.W, 1e-3)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(self.a(x, h) + h)


@register("rin")
class RIN(Cell):
    """Recurrent identity network: ReLU and W + I, one or several times per step."""

    paper, year = "Hu et al., Overcoming the Vanishing Gradient Problem in Plain Recurrent Networks", 2018

    def __init__(self, input_size: int, hidden_size: int, transitions: int = 1):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.deeper = nn.ModuleList(self.affine("h") for _ in range(positive_int("transitions", transitions) - 1))
        for affine in self.affines():
            for name in affine.operands:
                init.normal_(getattr(affine, name), 1e-3)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        h = relu(self.a(x, h) + h)
        for affine in self.deeper:
            h = relu(affine(h) + h)
        return h
