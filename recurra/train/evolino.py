"""Evolino (Schmidhuber, Wierstra, Gagliolo & Gomez 2007): evolved recurrence, read out by a pseudo-inverse.

A network is fitted in two phases: it reads the sequence, and the linear readout that fits the targets best is computed,
W_out = D Φ⁺; then it runs on alone, fed with its own outputs, and how far it strays is what evolution judges.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn, sigmoid, tanh
from torch.func import vmap

from recurra.cell import TIME, Cell, positive_int
from recurra.engine.operations import MEANING
from recurra.engine.trace import trace
from recurra.errors import InputError, OptionError, ShapeError, UnknownNameError
from recurra.readout import Readout
from recurra.train.learner import Learner, Predictor, positive
from recurra.train.searches import CMA, Search, SubPopulations
from recurra.train.step_function import Machine


class EvolinoCell(Cell):
    """The LSTM of the Evolino paper: a linear cell input, no peepholes, tanh outside the output gate."""

    paper, year = "Schmidhuber, Wierstra, Gagliolo & Gomez, Training Recurrent Networks by Evolino", 2007
    states = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.g, self.o = (self.affine("x", "h", bias=False) for _ in range(4))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i = sigmoid(self.i(x, h))
        f = sigmoid(self.f(x, h))
        c = f * c + i * self.g(x, h)
        o = sigmoid(self.o(x, h))
        return tanh(o * c), c


class Evolino(Learner):
    """A step is one generation; it returns the best error so far.

    `model` is a `Predictor` whose head is linear: the layer evolves, the head is computed. Targets are the inputs one
    step later, `x[t + 1]`, so that the network can run on its own outputs; with `closed_loop=False` any targets do, and
    the error is that of the fit on the steps kept for it. Of a sequence the first `washout` steps only set the state,
    the last `horizon` are the judge, and the readout is fitted between them, with `ridge` on its weights where it is
    not zero. `search` is "esp", enforced sub-populations with one population a memory cell, or "cma" over all weights.
    """

    def __init__(
        self,
        model: Predictor,
        loss: str | Callable = "mse",
        washout: int = 100,
        horizon: int = 100,
        closed_loop: bool = True,
        search: str = "esp",
        population: int = 20,
        trials: int = 2,
        mutation: float = 1e-3,
        burst: int = 20,
        spread: float = 0.1,
        ridge: float = 0.0,
        scale: float = 1.0,
        seed: int = 0,
    ):
        super().__init__(model, loss)
        if not isinstance(model, Predictor) or not isinstance(model.head, Readout) or model.head.softmax:
            raise InputError("model", type(model).__name__, "rc.train.Predictor(layer, outputs), with a linear head")
        self.machine = Machine(model)
        self.washout, self.horizon = positive_int("washout", washout), positive_int("horizon", horizon)
        self.closed_loop, self.ridge, self.scale = closed_loop, ridge, positive("scale", scale)
        searches: dict[str, Callable[..., Search]] = {"esp": SubPopulations, "cma": CMA}
        if search not in searches:
            raise UnknownNameError("search", search, searches)
        settings = {"population": population, "trials": trials, "mutation": mutation, "burst": burst, "spread": spread}
        self.search = searches[search](self.machine, seed, **settings)
        self.best = math.inf

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        if mask is not None:
            raise OptionError("mask", "a mask", "none: Evolino reads whole sequences of one length")
        self._check(x, target)
        genomes = self.search.ask()  # (N, P)
        errors, readouts = self.evaluate(genomes, x, target)
        self.search.tell(genomes, errors)
        winner = int(errors.argmin())
        if float(errors[winner]) < self.best:
            self.best = float(errors[winner])
            self._install(genomes[winner], readouts[winner])
        self.steps += 1
        return self.best

    def _check(self, x: Tensor, target: Tensor) -> None:
        if not isinstance(x, Tensor) or x.dim() != 3 or len(x) <= self.washout + self.horizon:
            raise ShapeError("x", tuple(getattr(x, "shape", ())), f"(T, B, D), T > {self.washout + self.horizon}")
        if target.shape[:2] != x.shape[:2] or target.dim() != 3:
            raise ShapeError("target", tuple(target.shape), f"{tuple(x.shape[:2])} and the numbers wanted at each step")
        if self.closed_loop and not torch.equal(target[:-1], x[1:]):
            raise InputError(
                "target", "something else than x one step later", "target[t] = x[t + 1], or closed_loop=False"
            )

    @torch.no_grad()
    def evaluate(self, genomes: Tensor, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Errors (N,) of networks and their readouts (N, q, H + 1)."""
        fitted = len(x) - self.horizon
        states, state = self._run(genomes, x if not self.closed_loop else x[:fitted])  # (N, T', B, H)
        kept = states[:, self.washout : fitted].flatten(1, 2)
        readouts = fit_readout(kept, target[self.washout : fitted].flatten(0, 1), self.ridge)
        if self.closed_loop:
            outputs = self._run_on(genomes, readouts, states[:, -1], state, self.horizon)
        else:
            outputs = read(states[:, fitted:].flatten(1, 2), readouts).unflatten(1, (self.horizon, -1))
        wanted = target[fitted:]  # (horizon, B, q): the first is what the last fitted step's successor shows
        if self.closed_loop:
            wanted = target[fitted - 1 : fitted - 1 + self.horizon]
        errors = (outputs - wanted).square().mean(dim=(1, 2, 3))
        return errors.nan_to_num(math.inf, math.inf), readouts

    def _step(self, genomes: Tensor) -> Callable:
        """(h, state) of one step of all networks, from states (N, B, n) and x (N, B, D)."""
        plain = Machine(self.model.layer)  # pyrefly: ignore
        plain.prepare()
        nothing, scale = genomes.new_zeros(0), self.scale
        together = side_by_side(plain, genomes)
        if together is not None:
            return lambda state, x: together(state, scale * x)

        def one(genome: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return plain.step(genome, nothing, state, scale * x)

        many = vmap(vmap(one, in_dims=(None, 0, 0)))
        return lambda state, x: many(genomes, state, x)

    def _run(self, genomes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states (N, T, B, H) of reading x, and the state after."""
        count = len(genomes)
        state = torch.stack([self.machine.start(genome, x.shape[1]) for genome in genomes])
        step, states = self._step(genomes), []
        for x_t in x:
            h, state = step(state, x_t.expand(count, *x_t.shape))
            states.append(h)
        return torch.stack(states, 1), state

    def _run_on(self, genomes: Tensor, readouts: Tensor, h: Tensor, state: Tensor, steps: int) -> Tensor:
        """(N, steps, B, q): each output is the next input."""
        step, outputs = self._step(genomes), []
        for _ in range(steps):
            y = read(h, readouts)
            outputs.append(y)
            h, state = step(state, y.clamp(-1e3, 1e3))
        return torch.stack(outputs, 1)

    @torch.no_grad()
    def generate(self, x: Tensor, steps: int) -> Tensor:
        """Read x (T, B, D), then go on alone: (steps, B, q), with the readout the model holds now."""
        genome = self.machine.flat()[0][None]
        states, state = self._run(genome, x)
        return self._run_on(genome, self._readout()[None], states[:, -1], state, steps)[0]

    def _readout(self) -> Tensor:
        head: Any = self.model.head
        bias = head.V.new_zeros(len(head.V)) if head.b is None else head.b
        return torch.cat([head.V, bias[:, None]], 1).detach()

    @torch.no_grad()
    def refit(self, x: Tensor, target: Tensor) -> None:
        """The readout anew, from all steps after the washout: once evolution is over, none need be kept back."""
        genome = self.machine.flat()[0][None]
        states = self._run(genome, x)[0][:, self.washout :].flatten(1, 2)
        self._install(genome[0], fit_readout(states, target[self.washout :].flatten(0, 1), self.ridge)[0])

    @torch.no_grad()
    def _install(self, genome: Tensor, readout: Tensor) -> None:
        head: Any = self.model.head
        parts = genome.split([p.numel() for p in self.machine.recurrent.values()])
        for parameter, part in zip(self.machine.recurrent.values(), parts, strict=True):
            parameter.copy_(part.view(parameter.shape))
        head.V.copy_(readout[:, :-1])
        if head.b is not None:
            head.b.copy_(readout[:, -1])

    def extra_state(self) -> dict[str, Any]:
        return {"search": self.search.state_dict(), "best": self.best}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.search.load_state_dict(state["search"])
        self.best = float(state["best"])


def fit_readout(states: Tensor, target: Tensor, ridge: float = 0.0) -> Tensor:
    """D Φ⁺ for each network: states (N, S, H), targets (S, q) → (N, q, H + 1), the last column a bias."""
    phi = F.pad(states, (0, 1), value=1.0)
    U, singular, Vh = torch.linalg.svd(phi, full_matrices=False)  # normal equations would square the condition number
    tiny = singular[..., :1] * max(phi.shape[-2:]) * torch.finfo(phi.dtype).eps
    inverse = torch.where(singular > tiny, singular / (singular.square() + ridge), 0.0)
    return (Vh.mT @ (inverse[..., None] * (U.mT @ target))).mT


def read(states: Tensor, readouts: Tensor) -> Tensor:
    """(N, S, H), (N, q, H + 1) → (N, S, q)."""
    return states @ readouts[..., :-1].mT + readouts[:, None, :, -1]


def side_by_side(machine: Machine, genomes: Tensor) -> Callable | None:
    """The traced step with a weight axis in front, where products and element-wise operations are all it has.

    vmap does this for any cell, at several times the cost a step.
    """
    cell, aten = machine.cells[0], torch.ops.aten
    step = trace(cell)
    calls = [node for node in step.graph.nodes if node.op == "call_function"]
    simple = all(n.target is aten.linear.default or _elementwise(n) for n in calls)
    plain = all(s.delays is None and s.name != TIME for s in cell.carried) and not cell.derived() and not cell.masks
    if len(machine.cells) != 1 or not (simple and plain) or set(step.weights) - set(dict(cell.named_parameters())):
        return None
    graph = fx.Graph()
    graph.output(graph.graph_copy(step.graph, {}))
    for node in graph.nodes:
        if node.target is aten.linear.default:
            node.target = _products
    function = fx.GraphModule(nn.Module(), graph).forward
    parts = genomes.split([p.numel() for p in machine.recurrent.values()], 1)
    named = {
        name.removeprefix("0."): part.view(len(genomes), *p.shape) if p.dim() > 1 else part[:, None]
        for (name, p), part in zip(machine.recurrent.items(), parts, strict=True)
    }
    weights = [named[name] for name in step.weights]

    def together(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h, *new = function(x, *state.split(machine.sizes, -1), *weights)[: len(step.outputs)]
        return h, torch.cat(new, -1)

    return together


def _products(values: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    product = values @ weights.mT
    return product if bias is None else product + bias


def _elementwise(node: fx.Node) -> bool:
    meaning = MEANING.get(node.target)
    return meaning is not None and meaning.kind == "elementwise"
