"""The unscented Kalman filter as a learning rule: points instead of derivatives (Wan & van der Merwe 2000)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from recurra.errors import InputError
from recurra.train.cost import check_cost
from recurra.train.learner import (
    CARRIED_BY_LEARNER,
    Learner,
    positive,
    refuse_carried_start,
    refuse_learned_start,
    step_targets,
)
from recurra.train.step_function import StepFunction


class UKF(Learner):
    """Joint unscented Kalman filter of weights and states (Wan & van der Merwe 2000), for one stream.

    Weights and states are one random vector. At every step, points that represent its mean and covariance run through
    the network; what the outputs should have been corrects all of them. The covariance between weights and states plays
    the part of the influence matrix. A step costs (weights + states)³: for networks of a few hundred weights, where it
    often learns most from each step.

    **Arguments**

    - `model`: as for `RTRL`.
    - `loss`: "mse", or "cross_entropy", where the observed outputs are the softmax probabilities.
    - `p`: initial variance of every weight. `r`: variance of the observations. `q`: variance that each step adds to
      weights and states.
    - `spread`: distance of the points from the mean, in standard deviations of all directions together.
    - `carry`: continue from the state of the previous call.
    - `memory_limit`: bytes; more raises `CostError`.

    **Returns** from `step(x, target, mask=None)` the mean loss, each step's before its update. x is (T, 1, D).

    **Example**

    >>> learner = rc.train.UKF(rc.train.Predictor(rc.RNN(1, 4), 1))
    >>> x = torch.sin(torch.arange(60.0) / 3).view(-1, 1, 1)
    >>> losses = [learner.step(x[:-1], x[1:]) for _ in range(2)]
    >>> losses[-1] < losses[0]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: str = "mse",
        p: float = 0.1,
        r: float = 0.1,
        q: float = 1e-6,
        spread: float = 1.0,
        carry: bool = False,
        memory_limit: int = 4 << 30,
    ):
        if loss not in ("mse", "cross_entropy"):
            raise InputError("loss", repr(loss), "'mse' or 'cross_entropy': the filter observes outputs, not a loss")
        super().__init__(model, loss)
        refuse_carried_start(model, CARRIED_BY_LEARNER)
        refuse_learned_start(model, "a fixed one: the filter corrects weights and states, not where they start")
        self.step_fn, self.classes, self.carry = StepFunction(model), loss == "cross_entropy", carry
        self.p, self.r, self.q = positive("p", p), positive("r", r), positive("q", q)
        self.spread = positive("spread", spread)
        self.sizes = [self.step_fn.weight_count, sum(p.numel() for p in self.step_fn.readout.values())]
        self.size = sum(self.sizes) + self.step_fn.state_size
        what = f"{sum(self.sizes):,} weights and {self.step_fn.state_size} states"
        like = self.step_fn.like
        check_cost("UKF", what, 4.0 * self.size**2, self.size**3 / 3, like.dtype, memory_limit, "use DEKF or RTRL")
        self.covariance = torch.zeros(self.size, self.size, dtype=torch.float64)
        self.covariance.diagonal()[: sum(self.sizes)] = self.p
        self.state = torch.zeros(self.step_fn.state_size, dtype=torch.float64)
        self._running = False

    def step(self, x: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        self.step_fn.refuse_random_head()
        targets, total = step_targets(x, target, mask), 0.0
        if x.shape[1] != 1:
            raise InputError("x", f"{x.shape[1]} sequences", "one stream, (T, 1, D); DEKF takes several")
        if not self._running:
            self._start()
        for t in range(len(x)):
            points, outputs = self._predict(x[t, 0])
            if bool(targets.counts[t, 0]):
                total += float(targets.loss_sum(self.loss, self._mean(outputs)[None, None].to(x.dtype), t))
                self._correct(points, outputs, targets.target[t, 0])
        self._running = self.carry
        self.steps += 1
        return total / max(targets.total, 1)

    def _start(self) -> None:
        weights = sum(self.sizes)
        self.state = self.step_fn.start(self.step_fn.flat()[0], 1)[0].double()
        self.covariance[weights:] = 0
        self.covariance[:, weights:] = 0

    def _weights_of_points(self) -> tuple[Tensor, float]:
        """The weight of each point in a mean, and the distance of the points."""
        n = self.size
        scale = self.spread**2 * n
        weights = torch.full((2 * n + 1,), 0.5 / scale, dtype=torch.float64)
        weights[0] = 1 - n / scale
        return weights, scale**0.5

    def _mean(self, values: Tensor) -> Tensor:
        return self._weights_of_points()[0] @ values

    def _predict(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Points after the step, (2n + 1, n), and their outputs; mean and covariance of the state move with them."""
        self.step_fn.prepare()
        like, n = self.step_fn.like, self.size
        recurrent, readout = self.step_fn.flat()
        mean = torch.cat([recurrent.double(), readout.double(), self.state])
        weights, distance = self._weights_of_points()
        jitter = 1e-12 * torch.eye(n, dtype=torch.float64)
        root = torch.linalg.cholesky(self.covariance + jitter) * distance  # its columns are the directions
        points = torch.cat([mean[None], mean + root.T, mean - root.T])
        w, r, s = points.to(like).split([*self.sizes, self.step_fn.state_size], 1)
        outputs, states = vmap(self.step_fn.step, in_dims=(0, 0, 0, None))(w, r, s, x.to(like))
        points = torch.cat([points[:, : sum(self.sizes)], states.double()], 1)
        off = points - weights @ points
        self.covariance = off.T * weights @ off + self.q * torch.eye(n, dtype=torch.float64)
        self.state = (weights @ points)[sum(self.sizes) :]
        return points, outputs.double()

    @torch.no_grad()
    def _correct(self, points: Tensor, outputs: Tensor, target: Tensor) -> None:
        weights, _ = self._weights_of_points()
        if self.classes:
            outputs = outputs.softmax(-1)
            target = F.one_hot(target, outputs.shape[-1])
        mean = weights @ outputs
        off, error = outputs - mean, target.double() - mean
        noise = self.r * torch.eye(len(mean), dtype=torch.float64)
        observed = off.T * weights @ off + noise
        cross = (points - weights @ points).T * weights @ off
        gain = torch.linalg.solve(observed, cross.T).T
        change = gain @ error
        self.covariance = self.covariance - gain @ observed @ gain.T
        self.covariance = (self.covariance + self.covariance.T) / 2
        parameters = list(self.step_fn.parameters().values())
        parts = change.split([*(p.numel() for p in parameters), len(self.state)])
        for parameter, part in zip(parameters, parts, strict=False):
            parameter += part.view(parameter.shape)
        self.state = self.state + change[sum(self.sizes) :]

    def extra_state(self) -> dict[str, Any]:
        carried = self.state.clone() if self._running else None
        return {"covariance": self.covariance.clone(), "carried": carried}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.covariance, self._running = state["covariance"].clone(), state["carried"] is not None
        if self._running:
            self.state = state["carried"].clone()
