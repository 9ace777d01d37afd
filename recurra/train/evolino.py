"""Evolino (Schmidhuber, Wierstra, Gagliolo & Gomez 2007): evolved recurrent weights, least-squares readout.

A network is evaluated in two phases. It reads the sequence, and the best linear readout is computed, W_out = D Φ⁺. Then
it runs freely on its own outputs; the error of this forecast is its fitness.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn, sigmoid, tanh
from torch.func import vmap

from recurra.cell import TIME, Cell, positive_int
from recurra.engine.operations import MEANING
from recurra.engine.trace import trace
from recurra.errors import InputError, OptionError, ShapeError, UnknownNameError
from recurra.train.computed_readouts import ComputedReadout, Fitted, LeastSquares, SupportVectors
from recurra.train.learner import Learner, Predictor, positive
from recurra.train.searches import CMA, Search, SubPopulations
from recurra.train.step_function import StepFunction


class EvolinoCell(Cell):
    """The LSTM of the Evolino paper: a linear cell input, no peepholes, tanh outside the output gate.

    **Example**

        >>> layer = rc.Recurrent(rc.train.EvolinoCell, 2, 4)
        >>> layer(torch.randn(5, 3, 2))[0].shape
        torch.Size([5, 3, 4])
    """

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
    """Evolution of recurrent weights with a least-squares readout; one call of `step` is one generation.

    **Arguments**

    - `model`: a `rc.train.Predictor` with a linear head. The layer evolves, the head is computed.
    - `washout`: first steps, which only set the state.
    - `horizon`: last steps, which measure the error. The readout is fitted between washout and horizon.
    - `closed_loop`: targets are the inputs one step later, and over the horizon the network runs on its own outputs.
      With False any targets do, and the horizon is read normally.
    - `search`: "esp", enforced sub-populations with one population per memory cell, or "cma" over all weights
      (needs the extra `evo`).
    - `population`, `trials`, `mutation`, `burst`, `spread`: settings of the search.
    - `ridge`: regularisation of the least-squares readout.
    - `scale`: factor on the inputs, and on the outputs that are fed back; small ones keep the cells nearly linear. The
      model that was learned reads `scale * x`; `generate` takes x itself.
    - `readout`: how the head is computed; by default least squares. `rc.train.SupportVectors` is another.
    - `seed`: of the search.

    **Returns** from `step(x, target)`, both (T, B, ·), the smallest error so far. `generate(x, n)` runs freely after
    reading x.

    **Example**

    >>> wave = torch.sin(0.3 * torch.arange(80.0))[:, None, None]  # (T, 1, 1)
    >>> model = rc.train.Predictor(rc.Recurrent(rc.train.EvolinoCell, 1, 4), 1)
    >>> learner = rc.train.Evolino(model, washout=10, horizon=10, population=6)
    >>> errors = [learner.step(wave[:-1], wave[1:]) for _ in range(3)]
    >>> errors[-1] <= errors[0]
    True
    >>> learner.generate(wave, 5).shape
    torch.Size([5, 1, 1])
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
        readout: ComputedReadout | None = None,
    ):
        super().__init__(model, loss)
        if not isinstance(model, Predictor):
            raise InputError("model", type(model).__name__, "rc.train.Predictor(layer, outputs), with a linear head")
        if readout is not None and ridge:
            raise OptionError("ridge", ridge, "no ridge: it belongs to the least-squares readout")
        self.readout = LeastSquares(ridge) if readout is None else readout
        self.readout.check_head(model.head)
        self.step_fn = StepFunction(model)
        self.washout, self.horizon = positive_int("washout", washout), positive_int("horizon", horizon)
        self.closed_loop, self.scale = closed_loop, positive("scale", scale)
        searches: dict[str, Callable[..., Search]] = {"esp": SubPopulations, "cma": CMA}
        if search not in searches:
            raise UnknownNameError("search", search, searches)
        settings = {"population": population, "trials": trials, "mutation": mutation, "burst": burst, "spread": spread}
        self.search = searches[search](self.step_fn, seed, **settings)
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
            self._set_weights(genomes[winner], readouts, winner)
        self.steps += 1
        return self.best

    def _check(self, x: Tensor, target: Tensor) -> None:
        if not isinstance(x, Tensor) or x.dim() != 3 or len(x) <= self.washout + self.horizon:
            raise ShapeError("x", tuple(getattr(x, "shape", ())), f"(T, B, D), T > {self.washout + self.horizon}")
        if target.shape[:2] != x.shape[:2] or target.dim() != 3:
            raise ShapeError("target", tuple(target.shape), f"{tuple(x.shape[:2])} and the target numbers at each step")
        if self.closed_loop and not torch.equal(target[:-1], x[1:]):
            raise InputError(
                "target", "something else than x one step later", "target[t] = x[t + 1], or closed_loop=False"
            )

    @torch.no_grad()
    def evaluate(self, genomes: Tensor, x: Tensor, target: Tensor) -> tuple[Tensor, Fitted]:
        """Errors (N,) of networks with flat weights (N, P), and their readouts."""
        fitted = len(x) - self.horizon
        states, state = self._run(genomes, x if not self.closed_loop else x[:fitted])  # (N, T', B, H)
        kept = states[:, self.washout : fitted].flatten(1, 2)
        readouts = self.readout.fit(kept, target[self.washout : fitted].flatten(0, 1))
        if self.closed_loop:
            outputs = self._free_run(genomes, readouts, states[:, -1], state, self.horizon)
        else:
            outputs = readouts(states[:, fitted:].flatten(1, 2)).unflatten(1, (self.horizon, -1))
        expected = target[fitted:]  # (horizon, B, q)
        if self.closed_loop:
            expected = target[fitted - 1 : fitted - 1 + self.horizon]
        errors = (outputs - expected).square().mean(dim=(1, 2, 3))
        return errors.nan_to_num(math.inf, math.inf), readouts

    def _step(self, genomes: Tensor) -> Callable:
        """A function from states (N, B, n) and x (N, B, D) to (h, state) of one step of all networks."""
        plain = StepFunction(self.model.layer)  # pyrefly: ignore
        plain.prepare()
        nothing, scale = genomes.new_zeros(0), self.scale
        batched = batched_step(plain, genomes)
        if batched is not None:
            return lambda state, x: batched(state, scale * x)

        def one(genome: Tensor, state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return plain.step(genome, nothing, state, scale * x)

        many = vmap(vmap(one, in_dims=(None, 0, 0)))
        return lambda state, x: many(genomes, state, x)

    def _run(self, genomes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states (N, T, B, H) while reading x, and the final state."""
        count = len(genomes)
        state = torch.stack([self.step_fn.start(genome, x.shape[1]) for genome in genomes])
        step, states = self._step(genomes), []
        for x_t in x:
            h, state = step(state, x_t.expand(count, *x_t.shape))
            states.append(h)
        return torch.stack(states, 1), state

    def _free_run(self, genomes: Tensor, readouts: Fitted, h: Tensor, state: Tensor, steps: int) -> Tensor:
        """Outputs (N, steps, B, q) where each output is the next input."""
        step, outputs = self._step(genomes), []
        for _ in range(steps):
            y = readouts(h)
            outputs.append(y)
            h, state = step(state, y.clamp(-1e3, 1e3))
        return torch.stack(outputs, 1)

    @torch.no_grad()
    def generate(self, x: Tensor, steps: int) -> Tensor:
        """Read x (T, B, D), then run freely on the outputs: (steps, B, q), with the current readout."""
        genome = self.step_fn.flat()[0][None]
        states, state = self._run(genome, x)
        return self._free_run(genome, self.readout.of(self._head), states[:, -1], state, steps)[0]

    @property
    def _head(self) -> nn.Module:
        return self.model.head  # pyrefly: ignore

    @torch.no_grad()
    def refit(self, x: Tensor, target: Tensor) -> None:
        """Refit the readout to all steps after the washout, without a held-out horizon."""
        genome = self.step_fn.flat()[0][None]
        states = self._run(genome, x)[0][:, self.washout :].flatten(1, 2)
        self.readout.fit(states, target[self.washout :].flatten(0, 1)).copy_to(self._head, 0)

    @torch.no_grad()
    def _set_weights(self, genome: Tensor, readouts: Fitted, network: int) -> None:
        parts = genome.split([p.numel() for p in self.step_fn.recurrent.values()])
        for parameter, part in zip(self.step_fn.recurrent.values(), parts, strict=True):
            parameter.copy_(part.view(parameter.shape))
        readouts.copy_to(self._head, network)

    def extra_state(self) -> dict[str, Any]:
        return {"search": self.search.state_dict(), "best": self.best}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.search.load_state_dict(state["search"])
        self.best = float(state["best"])


class Evoke(Evolino):
    """Evolution of recurrent weights with a readout of support vectors (Schmidhuber et al. 2007).

    **Arguments**

    - `model`: a `rc.train.Predictor` whose head is a `rc.train.KernelReadout`.
    - `C`, `epsilon`: of `rc.train.SupportVectors`.
    - `**options`: of `rc.train.Evolino`.

    **Returns** from `step` and `generate` what `Evolino` returns.

    **Example**

    >>> wave = torch.sin(0.3 * torch.arange(60.0))[:, None, None]  # (T, 1, 1)
    >>> layer = rc.Recurrent(rc.train.EvolinoCell, 1, 4)
    >>> model = rc.train.Predictor(layer, rc.train.KernelReadout(layer, 1))
    >>> learner = rc.train.Evoke(model, washout=10, horizon=10, population=4, trials=1)
    >>> learner.step(wave[:-1], wave[1:]) < 1.0
    True
    """

    def __init__(self, model: Predictor, C: float = 100.0, epsilon: float = 1e-3, **options: Any):
        super().__init__(model, readout=SupportVectors(C, epsilon), **options)


def batched_step(step_fn: StepFunction, genomes: Tensor) -> Callable | None:
    """The traced step with a leading network axis, if it has only products and element-wise operations, else None.

    `vmap` does the same for any cell, at several times the cost per step.
    """
    cell, aten = step_fn.cells[0], torch.ops.aten
    step = trace(cell)
    calls = [node for node in step.graph.nodes if node.op == "call_function"]
    simple = all(n.target is aten.linear.default or _elementwise(n) for n in calls)
    plain = all(s.delays is None and s.name != TIME for s in cell.carried)
    plain = plain and not cell.derived() and not cell.drawn_inputs()
    if len(step_fn.cells) != 1 or not (simple and plain) or set(step.weights) - set(dict(cell.named_parameters())):
        return None
    graph = fx.Graph()
    graph.output(graph.graph_copy(step.graph, {}))
    for node in graph.nodes:
        if node.target is aten.linear.default:
            node.target = _products
    function = fx.GraphModule(nn.Module(), graph).forward
    parts = genomes.split([p.numel() for p in step_fn.recurrent.values()], 1)
    named = {
        name.removeprefix("0."): part.view(len(genomes), *p.shape) if p.dim() > 1 else part[:, None]
        for (name, p), part in zip(step_fn.recurrent.items(), parts, strict=True)
    }
    weights = [named[name] for name in step.weights]

    def batched(state: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h, *new = function(x, *state.split(step_fn.sizes, -1), *weights)[: len(step.outputs)]
        return h, torch.cat(new, -1)

    return batched


def _products(values: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    product = values @ weights.mT
    return product if bias is None else product + bias


def _elementwise(node: fx.Node) -> bool:
    meaning = MEANING.get(node.target)
    return meaning is not None and meaning.kind == "elementwise"
