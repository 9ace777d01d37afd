"""Trackers that carry the influence of weights on states: compiled, or through torch.func where that cannot be."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.engine.forward_mode.chunk import Chunk
from recurra.engine.forward_mode.online_chunk import ChunkLoop
from recurra.engine.forward_mode.online_loop import OnlineLoop
from recurra.engine.forward_mode.row_chunk import RowChunk, chunk_of
from recurra.train.cost import check_cost
from recurra.train.learner import StepTargets
from recurra.train.online.compiled_loop import loop_of, targets_of, updates_in
from recurra.train.online.compiled_step import (
    CompiledInfluence,
    Head,
    InfluencePlan,
    NotCompiled,
    WeightGradients,
    influence_plan,
)
from recurra.train.online.learner import OnlineLearner, Tracker
from recurra.train.sensitivity import Masked, Sensitivity, exact, is_elementwise, snap1
from recurra.train.step_function import StepFunction


class CompiledTracker(Tracker):
    """The influence stored by its sparsity, advanced by the compiled forward-mode step."""

    decay: float | None = None  # of a feedback that changes as the head does

    def __init__(self, step_fn: StepFunction, batch: int, plan: InfluencePlan):
        super().__init__(step_fn, batch)
        self.influence, self.head = CompiledInfluence(plan, batch), Head(step_fn)
        self.to_parameters = WeightGradients(step_fn, plan)
        self.chunk: Chunk | None = None  # made by the first call of many steps
        self.loop: OnlineLoop | None = None  # made by the first call that updates after every step
        self.knows_loop = False
        self.is_new = True  # whether no step has been taken since the start

    def reset(self) -> None:
        self.to_parameters.refresh()
        self.influence.reset(self.step_fn.start(self.step_fn.flat()[0], self.batch))
        self.is_new = not any(block.first for block in self.influence.plan.blocks)
        if isinstance(self.loop, ChunkLoop):
            self.loop.restart(self.is_new)

    def output(self, x: Tensor) -> Tensor:
        self._finish_chunk()
        self.to_parameters.refresh()
        return self.head(self.influence.forward(x))

    def peek(self, x: Tensor) -> Tensor:
        self.to_parameters.refresh()
        with torch.no_grad():  # the state moves with `gradient` alone
            return self.head.module(self.influence.forward(x).clone())

    def _finish_chunk(self) -> None:
        """The influence after the steps that the loop has taken."""
        if isinstance(self.loop, ChunkLoop):
            self.loop.finish()

    def gradient(self, loss: Tensor | None) -> list[Tensor] | None:
        self.is_new = False
        if loss is None:
            self.influence.learn(None)
            return None
        by_output, by_head = self.signal(loss)
        self.influence.learn(by_output[:, None])
        return self.to_parameters(self.influence.gradients()) + by_head

    def signal(self, loss: Tensor) -> tuple[Tensor, list[Tensor]]:
        """What the loss sends to the outputs of the layer, and to the weights of the head."""
        return self.head.gradients(loss)

    def call_gradient(
        self, learner: OnlineLearner, x: Tensor, targets: StepTargets
    ) -> tuple[float, list[Tensor]] | None:
        if len(x) == 1:  # nothing to gain
            return None
        chunk, total = self._begin_chunk(), 0.0
        if chunk is None:
            return None
        by_tensor: dict[tuple[int, str], Tensor] = {}
        read = self._reader(learner, targets)
        for start in range(0, len(x), chunk.length):
            piece = x[start : start + chunk.length]
            loss, by_output = read(chunk.forward(piece), start)
            total += loss
            found = chunk.learn(by_output, learner.carry or start + len(piece) < len(x))
            by_tensor = {key: by_tensor[key] + g for key, g in found.items()} if by_tensor else found
        self.is_new = False
        return total, self.to_parameters(by_tensor) + read.gradients()

    def _begin_chunk(self) -> Chunk | None:
        """The chunk of this influence, ready for the next steps."""
        self.chunk = self.chunk or chunk_of(self.influence)
        if self.chunk is not None:
            self._finish_chunk()
            self.to_parameters.refresh()
            self.chunk.is_fresh = self.is_new
        return self.chunk

    def _whole_call(self, learner: OnlineLearner, x: Tensor, targets: StepTargets) -> float | None:
        """An update for a call, in one compiled call where the influence is of rows."""
        loop = self.find_loop() if len(x) > 1 and self.decay is None else None
        chunk = None if loop is None else self._begin_chunk()
        if loop is None or not isinstance(chunk, RowChunk) or not targets.total:
            return None
        given = updates_in(loop, learner, x, targets)
        if given is None:
            return None
        self.is_new = False
        rows, numbers, counts, loss, rule = given
        scale = 1.0 / targets.total
        return loop.learn_call(chunk, rows, numbers, counts, loss, scale, learner.carry, rule)

    def _reader(self, learner: OnlineLearner, targets: StepTargets) -> "HeadOfLoop | HeadOfChunks":
        loop = self.find_loop()
        found = None if loop is None else targets_of(learner.loss, targets, loop.head.outputs, loop.run.dtype)
        if loop is None or found is None:
            return HeadOfChunks(self, learner, targets)
        return HeadOfLoop(loop, self.head, targets.counts.contiguous(), *found)

    def feedback(self) -> Tensor | None:
        """The matrix from errors to units, (q, H), where it is fixed and not that of the head."""
        return None

    def find_loop(self) -> OnlineLoop | None:
        """The compiled loop, made once; None where there is none."""
        if not self.knows_loop:
            self.loop, self.knows_loop = loop_of(self.influence, self.step_fn, self.feedback(), self.decay), True
        return self.loop

    def call_updates(self, learner: OnlineLearner, x: Tensor, targets: StepTargets) -> float | None:
        if learner.update == "call":
            return self._whole_call(learner, x, targets)
        loop = self.find_loop()
        given = None if loop is None else updates_in(loop, learner, x, targets)
        if loop is None or given is None:
            return None
        self.to_parameters.refresh()
        if isinstance(loop, ChunkLoop) and not loop.at:
            loop.restart(self.is_new)
        self.is_new = False
        return loop.learn(*given)

    def state_dict(self) -> dict[str, Any]:
        opened = self.loop.state_dict() if isinstance(self.loop, ChunkLoop) and self.loop.at else None
        return self.influence.state_dict() | ({} if opened is None else {"chunk": opened})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.influence.load_state_dict(state)
        self.is_new = False
        loop = self.find_loop() if "chunk" in state else self.loop
        if isinstance(loop, ChunkLoop):
            loop.restart(False)
            if "chunk" in state:
                loop.load_state_dict(state["chunk"])


class HeadOfLoop:
    """A linear head and its loss on chunks of outputs, by the compiled loop."""

    def __init__(self, loop: OnlineLoop, head: Head, counts: Tensor, target: Tensor, loss: str):
        self.loop, self.counts, self.target, self.loss = loop, counts, target, loss
        self.memory = [loop.gradient_of(weight) for weight in head.weights.values()]
        self.found = [torch.zeros_like(gradient) for gradient in self.memory]

    def __call__(self, outputs: Tensor, start: int) -> tuple[float, Tensor]:
        """The sum of the losses of outputs (K, B, H), and what they send back to them."""
        piece = slice(start, start + len(outputs))
        for gradient in self.memory:
            gradient.zero_()
        result = self.loop.read_outputs(outputs, self.target[piece], self.counts[piece], self.loss)
        for total, gradient in zip(self.found, self.memory, strict=True):
            total += gradient
        return result

    def gradients(self) -> list[Tensor]:
        return self.found


class HeadOfChunks:
    """Any head and loss on chunks of outputs, by autograd."""

    def __init__(self, tracker: CompiledTracker, learner: OnlineLearner, targets: StepTargets):
        self.tracker, self.loss, self.targets, self.found = tracker, learner.loss, targets, list[Tensor]()

    def __call__(self, outputs: Tensor, start: int) -> tuple[float, Tensor]:
        output = self.tracker.head.over_steps(outputs)
        with torch.enable_grad():
            loss = self.targets.loss_sum(self.loss, output, start)
        by_output, head = self.tracker.signal(loss)
        self.found = [a + b for a, b in zip(self.found, head, strict=True)] if self.found else head
        return float(loss.detach()), by_output

    def gradients(self) -> list[Tensor]:
        return self.found


class SensitivityTracker(Tracker):
    """The influence through torch.func, for networks whose step is not compiled: exact, and slower."""

    def __init__(self, step_fn: StepFunction, batch: int, sensitivity: Sensitivity, why: str):
        super().__init__(step_fn, batch)
        self.sensitivity, self.why = sensitivity, why  # of the layer without its head
        self.head = Head(step_fn)

    def reset(self) -> None:
        self.sensitivity.reset(self.batch)

    def output(self, x: Tensor) -> Tensor:
        output, self.by_weights, _ = self.sensitivity.advance(x)
        return self.head(output)

    def gradient(self, loss: Tensor | None) -> list[Tensor] | None:
        if loss is None:
            return None
        by_output, by_head = self.head.gradients(loss)
        flat = torch.einsum("bq,bqp->p", by_output, self.by_weights)
        weights = list(self.step_fn.recurrent.values())
        parts = flat.split([w.numel() for w in weights]) if weights else []
        return [part.view(w.shape) for part, w in zip(parts, weights, strict=True)] + by_head

    def state_dict(self) -> dict[str, Any]:
        return self.sensitivity.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sensitivity.load_state_dict(state)


def influence_tracker(step_fn: StepFunction, batch: int, steps: int | None, memory_limit: int, name: str) -> Tracker:
    """A tracker of the influence that `steps` steps reach (None: all of it); raises `CostError` above the limit."""
    try:
        plan = influence_plan(step_fn, steps)
        check_influence(step_fn, plan, batch, memory_limit, name)
        return CompiledTracker(step_fn, batch, plan)
    except NotCompiled as reason:
        return SensitivityTracker(step_fn, batch, _sensitivity(step_fn, batch, steps, memory_limit, name), str(reason))


def _sensitivity(step_fn: StepFunction, batch: int, steps: int | None, memory_limit: int, name: str) -> Sensitivity:
    alone = StepFunction(step_fn.layer if step_fn.layer is not None else nn.Identity())
    if steps is None or step_fn.layer is None or is_elementwise(alone):
        return exact(alone, batch, memory_limit, name)
    snap1(alone, batch, memory_limit, name)  # raises CostError
    return Masked(alone)


def check_influence(step_fn: StepFunction, plan: InfluencePlan, batch: int, memory_limit: int, name: str) -> None:
    """Raise `CostError`, with the memory of the algorithms that fit, if the influence exceeds the limit."""
    what = f"{step_fn.state_size} states × {step_fn.weight_count:,} weights for {batch} sequence{'s' * (batch != 1)}"
    own = sum(block.size for block in plan.blocks)
    size = step_fn.like.dtype.itemsize * batch
    instead = (
        f"SnAp(1) keeps at least {own * size / 2**20:,.1f} MiB, UORO {(own + step_fn.state_size) * size / 2**20:,.1f} "
        "MiB; BPTT(k1=…, k2=…) learns from long streams without an influence"
    )
    numbers = batch * plan.numbers * (2 if plan.kinds()["matrix"] else 1)
    check_cost(name, what, numbers, 2.0 * batch * plan.multiplications, step_fn.like.dtype, memory_limit, instead)
