"""The decoupled extended Kalman filter as a learning rule (Puskorius & Feldkamp 1994; LSTM: Pérez-Ortiz et al. 2003).

Weights are the constant state of a system, targets its observations. Each group of weights has its own covariance; the
groups share one matrix of the size of the outputs:

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
from recurra.train.learner import (
    CARRIED_BY_LEARNER,
    Learner,
    StepTargets,
    positive,
    refuse_carried_start,
    step_targets,
)
from recurra.train.objective import output_kind
from recurra.train.sensitivity import Sensitivity, exact, snap1
from recurra.train.step_function import StepFunction


class DEKF(Learner):
    """Decoupled extended Kalman filter: a second-order online learner, often the most accurate per step seen.

    Updates weights at every step that has a target, from all sequences of the batch at once (multi-stream).

    **Arguments**

    - `model`: as for `RTRL`.
    - `loss`: "mse", or "cross_entropy", where the observed outputs are the softmax probabilities (those of
      the model, if it returns probabilities).
    - `groups`: "node" (one covariance per unit, for the weights into it) or "global" (the full filter).
    - `derivatives`: of the outputs by the weights, from "rtrl", its approximation "snap1", or "bptt" over the last
      `window` steps.
    - `p`: the initial covariance is `p` times the identity.
    - `r`, `q`: first and last value of observation and process noise; interpolated on a logarithmic scale over `anneal`
      updates.
    - `carry`: continue from the state of the previous call.
    - `memory_limit`: bytes; more raises `CostError`.

    **Returns** from `step(x, target, mask=None)` the mean loss, each step's before its update.

    **Example**

    >>> learner = rc.train.DEKF(rc.train.Predictor(rc.LSTM(2, 4), 1))
    >>> x = torch.randn(20, 4, 2)
    >>> losses = [learner.step(x, x.sum(2, keepdim=True)) for _ in range(3)]
    >>> losses[-1] < losses[0]
    True
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
            raise InputError("loss", repr(loss), "'mse' or 'cross_entropy': the filter observes outputs, not a loss")
        if groups not in ("node", "global"):
            raise InputError("groups", repr(groups), "'node' or 'global'")
        if derivatives not in ("rtrl", "snap1", "bptt"):
            raise InputError("derivatives", repr(derivatives), "'rtrl', 'snap1' or 'bptt'")
        super().__init__(model, loss)
        refuse_carried_start(model, CARRIED_BY_LEARNER)
        self.step_fn, self.classes = StepFunction(model), loss == "cross_entropy"
        self.probabilities = output_kind(model) == "softmax"
        self.derivatives, self.window = derivatives, positive_int("window", window)
        self.r, self.q = (positive("r", r[0]), positive("r", r[1])), q
        self.anneal, self.carry, self.memory_limit = positive_int("anneal", anneal), carry, memory_limit
        self.groups = node_groups(self.step_fn) if groups == "node" else one_group(self.step_fn)
        self._check_cost(groups)
        like = self.step_fn.like
        eyes = ((torch.eye(g.shape[1], dtype=like.dtype, device=like.device), len(g)) for g in self.groups)
        self.P = [positive("p", p) * eye.expand(rows, *eye.shape).contiguous() for eye, rows in eyes]  # (rows, k, k)
        self.updates = 0
        self.tracker: Sensitivity | WindowDerivatives = self._new_tracker(1)
        self._running = False

    def _check_cost(self, groups: str) -> None:
        numbers = sum(2 * g.shape[0] * g.shape[1] ** 2 for g in self.groups)
        what = f"{sum(g.numel() for g in self.groups):,} weights in {sum(len(g) for g in self.groups):,} groups"
        instead = "groups='node' needs far less, BPTT almost nothing" if groups == "global" else "use BPTT"
        check_cost("DEKF", what, numbers, 4.0 * numbers, self.step_fn.like.dtype, self.memory_limit, instead)

    def _new_tracker(self, batch: int) -> "Sensitivity | WindowDerivatives":
        if self.derivatives == "bptt":
            return WindowDerivatives(self.step_fn, self.window)
        choose = exact if self.derivatives == "rtrl" else snap1
        return choose(self.step_fn, batch, self.memory_limit, "DEKF")

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        self.step_fn.refuse_random_head()
        targets = step_targets(x, target, mask)
        batch = x.shape[1]
        if not self._running or len(self.tracker.state) != batch:
            self.tracker = self._new_tracker(batch)
            self.tracker.reset(batch)
        total = 0.0
        for t in range(len(x)):
            y, by_weights, by_readout = self.tracker.advance(x[t])
            if bool(targets.counts[t].any()):
                total += float(targets.loss_sum(self.loss, y[None], t))
                self._observe(y, torch.cat([by_weights, by_readout], 2), targets, t)
        self._running = self.carry
        self.steps += 1
        return total / max(targets.total, 1)

    def _observe(self, y: Tensor, jacobian: Tensor, targets: StepTargets, t: int) -> None:
        """One update from the outputs y (B, q) and their derivatives (B, q, P)."""
        counts = targets.counts[t]
        y, jacobian, target = y[counts], jacobian[counts], targets.target[t][counts]
        if self.classes:
            if not self.probabilities:
                y = y.softmax(-1)
                jacobian = y[..., None] * (jacobian - torch.einsum("bq,bqp->bp", y, jacobian)[:, None])
            target = F.one_hot(target, y.shape[-1]).to(y.dtype)
        self.correct(jacobian.flatten(0, 1).T, (target - y).flatten())

    def correct(self, H: Tensor, innovation: Tensor) -> None:
        """One filter update from derivatives (weights, m) of m outputs and the innovation (m,) = target - output."""
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
        """R and Q of the current update."""
        done = min(self.updates / self.anneal, 1.0)
        return _between(self.r, done), _between(self.q, done)

    @torch.no_grad()
    def _move(self, change: Tensor) -> None:
        parameters = self.step_fn.parameters().values()
        for parameter, part in zip(parameters, change.split([p.numel() for p in parameters]), strict=True):
            parameter += part.view(parameter.shape)

    def extra_state(self) -> dict[str, Any]:
        tracker = self.tracker.state_dict() if self._running else None
        return {"P": [P.clone() for P in self.P], "updates": self.updates, "walk": tracker}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.P, self.updates = [P.clone() for P in state["P"]], int(state["updates"])
        self._running = state["walk"] is not None
        if self._running:
            self.tracker = self._new_tracker(len(state["walk"]["state"]))
            self.tracker.load_state_dict(state["walk"])


def _between(ends: tuple[float, float], done: float) -> float:
    first, last = ends
    return first * (last / first) ** done if first > 0 and last > 0 else first + (last - first) * done


# ---------------------------------------------------------------------------------------------------- groups


def one_group(step_fn: StepFunction) -> list[Tensor]:
    return [torch.arange(sum(p.numel() for p in step_fn.parameters().values()), device=step_fn.like.device)[None]]


def node_groups(step_fn: StepFunction) -> list[Tensor]:
    """Indices (rows, k) into the flat weights: a row holds all weights into one unit, peepholes included.

    Units with the same number of weights share a tensor, for fewer and larger products.
    """
    modules = {name.rpartition(".")[0] for name in step_fn.parameters()}
    places: dict[tuple[str, int], list[Tensor]] = {}
    offset = 0
    for name, parameter in step_fn.parameters().items():
        parent, _, leaf = name.rpartition(".")
        gate = f"{parent}.{leaf.rpartition('_')[2]}"  # p_i belongs to the unit of gate i
        rows = len(parameter) if parameter.dim() else 1
        owner = gate if parameter.dim() == 1 and gate in modules else parent
        place = offset + torch.arange(parameter.numel(), device=step_fn.like.device).view(rows, -1)
        places.setdefault((owner, rows), []).append(place)
        offset += parameter.numel()
    units = [torch.cat(parts, 1) for parts in places.values()]
    alike: dict[int, list[Tensor]] = {}
    for unit in units:
        alike.setdefault(unit.shape[1], []).append(unit)
    return [torch.cat(parts) for parts in alike.values()]


# ---------------------------------------------------------------------------------------------------- derivatives


class WindowDerivatives:
    """dy/dw by BPTT over the last `length` steps, with the interface of `Sensitivity`."""

    def __init__(self, step_fn: StepFunction, length: int):
        self.step_fn, self.length = step_fn, length
        self.state, self.first, self.seen = torch.empty(0), True, torch.empty(0)

    def reset(self, batch: int) -> None:
        self.state = self.step_fn.start(self.step_fn.flat()[0], batch)
        self.first, self.seen = True, self.state.new_zeros(0, batch, 0)

    def advance(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.step_fn.prepare()
        weights, readout = self.step_fn.flat()
        self.seen = torch.cat([self.seen.view(len(self.seen), *x.shape), x[None]])
        if len(self.seen) > self.length:
            step = vmap(self.step_fn.step, in_dims=(None, None, 0, 0))
            self.state, self.first = step(weights, readout, self.state, self.seen[0])[1], False
            self.seen = self.seen[1:]

        def outputs(w: Tensor, r: Tensor, state: Tensor, xs: Tensor) -> tuple[Tensor, Tensor]:
            state = self.step_fn.start(w, 1)[0] if self.first else state
            for x_t in xs[:-1]:
                state = self.step_fn.step(w, r, state, x_t)[1]
            y = self.step_fn.step(w, r, state, xs[-1])[0]
            return y, y

        both = vmap(jacrev(outputs, (0, 1), has_aux=True), in_dims=(None, None, 0, 1))
        (by_weights, by_readout), y = both(weights, readout, self.state, self.seen)
        return y, by_weights, by_readout

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.state, "first": self.first, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state, self.first, self.seen = state["state"], state["first"], state["seen"]
