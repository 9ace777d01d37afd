"""The decoupled extended Kalman filter as a learning rule (Puskorius & Feldkamp 1994; LSTM: Pérez-Ortiz et al. 2003).

Weights are the state of a system that does not move, targets are what is observed of it. Groups of weights keep their
own covariance and meet in one small matrix of the size of the outputs:

    A   = (R + Σ_i H_iᵀ P_i H_i)⁻¹        H_i = (dy_t / dw_i)ᵀ
    K_i = P_i H_i A
    w_i ← w_i + K_i (d_t - y_t)
    P_i ← P_i - K_i H_iᵀ P_i + Q
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev, vmap

from recurra.cell import positive_int
from recurra.errors import InputError
from recurra.train.cost import check_cost
from recurra.train.learner import Learner, Wanted, positive, wanted
from recurra.train.sensitivity import Sensitivity, exact, snap1
from recurra.train.step_function import Machine


class DEKF(Learner):
    """Learns at every step that has a target, from all sequences of the batch at once (several streams, one filter).

    `loss` is "mse", or "cross_entropy", where the observed outputs are the softmax's probabilities. `groups` is "node"
    (the weights into one unit) or "global" (one group: the full filter). `derivatives` come from "rtrl", from its
    approximation "snap1", or from "bptt" over the last `window` steps. R and Q go from their first to their last value
    in `anneal` updates, evenly on a logarithmic scale; P starts as `p` times the identity.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str = "mse",
        groups: str = "node",
        derivatives: str = "rtrl",
        window: int = 20,
        p: float = 100.0,
        r: tuple[float, float] = (100.0, 3.0),
        q: tuple[float, float] = (1e-2, 1e-6),
        anneal: int = 1000,
        carry: bool = False,
        memory_limit: int = 4 << 30,
    ):
        if loss not in ("mse", "cross_entropy"):
            raise InputError("loss", repr(loss), "'mse' or 'cross_entropy': a filter observes outputs, not a loss")
        if groups not in ("node", "global"):
            raise InputError("groups", repr(groups), "'node' or 'global'")
        if derivatives not in ("rtrl", "snap1", "bptt"):
            raise InputError("derivatives", repr(derivatives), "'rtrl', 'snap1' or 'bptt'")
        super().__init__(model, loss)
        self.machine, self.classes = Machine(model), loss == "cross_entropy"
        self.derivatives, self.window = derivatives, positive_int("window", window)
        self.r, self.q = (positive("r", r[0]), positive("r", r[1])), q
        self.anneal, self.carry, self.memory_limit = positive_int("anneal", anneal), carry, memory_limit
        self.groups = node_groups(self.machine) if groups == "node" else one_group(self.machine)
        self._check_cost(groups)
        like = self.machine.like
        eyes = ((torch.eye(g.shape[1], dtype=like.dtype, device=like.device), len(g)) for g in self.groups)
        self.P = [positive("p", p) * eye.expand(rows, *eye.shape).contiguous() for eye, rows in eyes]  # (rows, k, k)
        self.updates = 0
        self.walk: Sensitivity | Window = self._walk(1)
        self._running = False

    def _check_cost(self, groups: str) -> None:
        numbers = sum(2 * g.shape[0] * g.shape[1] ** 2 for g in self.groups)
        what = f"{sum(g.numel() for g in self.groups):,} weights in {sum(len(g) for g in self.groups):,} groups"
        instead = "groups='node' needs far less, BPTT next to nothing" if groups == "global" else "use BPTT"
        check_cost("DEKF", what, numbers, 4.0 * numbers, self.machine.like.dtype, self.memory_limit, instead)

    def _walk(self, batch: int) -> "Sensitivity | Window":
        if self.derivatives == "bptt":
            return Window(self.machine, self.window)
        choose = exact if self.derivatives == "rtrl" else snap1
        return choose(self.machine, batch, self.memory_limit, "DEKF")

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        asked = wanted(x, target, mask)
        batch = x.shape[1]
        if not self._running or len(self.walk.state) != batch:
            self.walk = self._walk(batch)
            self.walk.reset(batch)
        total = 0.0
        for t in range(len(x)):
            y, by_weights, by_readout = self.walk.advance(x[t])
            if bool(asked.counts[t].any()):
                total += float(asked.loss_sum(self.loss, y[None], t))
                self._observe(y, torch.cat([by_weights, by_readout], 2), asked, t)
        self._running = self.carry
        self.steps += 1
        return total / max(asked.total, 1)

    def _observe(self, y: Tensor, jacobian: Tensor, asked: Wanted, t: int) -> None:
        """One update from the outputs y (B, q) and their derivatives (B, q, P)."""
        counts = asked.counts[t]
        y, jacobian, target = y[counts], jacobian[counts], asked.target[t][counts]
        if self.classes:
            y = y.softmax(-1)
            jacobian = y[..., None] * (jacobian - torch.einsum("bq,bqp->bp", y, jacobian)[:, None])
            target = F.one_hot(target, y.shape[-1]).to(y.dtype)
        self.correct(jacobian.flatten(0, 1).T, (target - y).flatten())

    def correct(self, H: Tensor, innovation: Tensor) -> None:
        """The filter itself: derivatives (weights, m) of m outputs, and by how much the outputs missed."""
        noise, drift = self.noise()
        parts = [H[group] for group in self.groups]  # each (rows, k, m)
        PH = [P @ h for P, h in zip(self.P, parts, strict=True)]
        S = noise * torch.eye(H.shape[1], dtype=H.dtype, device=H.device)
        for h, ph in zip(parts, PH, strict=True):
            S = S + torch.einsum("rkm,rkn->mn", h, ph)
        factor = torch.linalg.cholesky(S)
        weighted = torch.cholesky_solve(innovation[:, None], factor)[:, 0]
        change = torch.zeros(len(H), dtype=H.dtype, device=H.device)
        for k, (group, ph) in enumerate(zip(self.groups, PH, strict=True)):
            change[group] = ph @ weighted
            root = torch.linalg.solve_triangular(factor, ph.mT, upper=False)  # K Hᵀ P = rootᵀ root stays symmetric
            self.P[k] = self.P[k] - root.mT @ root
            self.P[k].diagonal(dim1=1, dim2=2).add_(drift)
        self._move(change)
        self.updates += 1

    def noise(self) -> tuple[float, float]:
        """R and Q of the present update."""
        done = min(self.updates / self.anneal, 1.0)
        return _between(self.r, done), _between(self.q, done)

    @torch.no_grad()
    def _move(self, change: Tensor) -> None:
        parameters = self.machine.parameters().values()
        for parameter, part in zip(parameters, change.split([p.numel() for p in parameters]), strict=True):
            parameter += part.view(parameter.shape)

    def extra_state(self) -> dict[str, Any]:
        walk = self.walk.state_dict() if self._running else None
        return {"P": [P.clone() for P in self.P], "updates": self.updates, "walk": walk}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.P, self.updates = [P.clone() for P in state["P"]], int(state["updates"])
        self._running = state["walk"] is not None
        if self._running:
            self.walk = self._walk(len(state["walk"]["state"]))
            self.walk.load_state_dict(state["walk"])


def _between(ends: tuple[float, float], done: float) -> float:
    first, last = ends
    return first * (last / first) ** done if first > 0 and last > 0 else first + (last - first) * done


# ---------------------------------------------------------------------------------------------------- groups


def one_group(machine: Machine) -> list[Tensor]:
    return [torch.arange(sum(p.numel() for p in machine.parameters().values()), device=machine.like.device)[None]]


def node_groups(machine: Machine) -> list[Tensor]:
    """(rows, k) places in the flat vector of weights: a row holds all that enters one unit, peepholes included.

    Units with equally many weights lie in one tensor: there are fewer, larger products to wait for.
    """
    modules = {name.rpartition(".")[0] for name in machine.parameters()}
    places: dict[tuple[str, int], list[Tensor]] = {}
    offset = 0
    for name, parameter in machine.parameters().items():
        parent, _, leaf = name.rpartition(".")
        gate = f"{parent}.{leaf.rpartition('_')[2]}"  # p_i belongs to the unit that i computes
        rows = len(parameter) if parameter.dim() else 1
        owner = gate if parameter.dim() == 1 and gate in modules else parent
        place = offset + torch.arange(parameter.numel(), device=machine.like.device).view(rows, -1)
        places.setdefault((owner, rows), []).append(place)
        offset += parameter.numel()
    units = [torch.cat(parts, 1) for parts in places.values()]
    alike: dict[int, list[Tensor]] = {}
    for unit in units:
        alike.setdefault(unit.shape[1], []).append(unit)
    return [torch.cat(parts) for parts in alike.values()]


# ---------------------------------------------------------------------------------------------------- derivatives


class Window:
    """dy/dw by BPTT over the last steps, walking forward like a `Sensitivity`."""

    def __init__(self, machine: Machine, length: int):
        self.machine, self.length = machine, length
        self.state, self.first, self.seen = torch.empty(0), True, torch.empty(0)

    def reset(self, batch: int) -> None:
        self.state = self.machine.start(self.machine.flat()[0], batch)
        self.first, self.seen = True, self.state.new_zeros(0, batch, 0)

    def advance(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.machine.prepare()
        weights, readout = self.machine.flat()
        self.seen = torch.cat([self.seen.view(len(self.seen), *x.shape), x[None]])
        if len(self.seen) > self.length:
            step = vmap(self.machine.step, in_dims=(None, None, 0, 0))
            self.state, self.first = step(weights, readout, self.state, self.seen[0])[1], False
            self.seen = self.seen[1:]

        def outputs(w: Tensor, r: Tensor, state: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
            state = self.machine.start(w, 1)[0] if self.first else state
            for x_t in xs[:-1]:
                state = self.machine.step(w, r, state, x_t)[1]
            y = self.machine.step(w, r, state, xs[-1])[0]
            return y, y

        both = vmap(jacrev(outputs, (0, 1), has_aux=True), in_dims=(None, None, 0, 1))
        (by_weights, by_readout), y = both(weights, readout, self.state, self.seen)
        return y, by_weights, by_readout

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "first": self.first, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state, self.first, self.seen = state["state"], state["first"], state["seen"]
