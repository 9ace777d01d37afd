"""The compiled loop of a learner that updates after every step: which networks, losses and optimisers it takes."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.engine.forward_mode.estimate_loop import EstimateLoop
from recurra.engine.forward_mode.influence import START
from recurra.engine.forward_mode.kronecker_loop import KroneckerLoop
from recurra.engine.forward_mode.online_chunk import ChunkLoop
from recurra.engine.forward_mode.online_loop import LinearHead, OnlineLoop
from recurra.engine.forward_mode.pattern import keeps_all
from recurra.engine.forward_mode.program import Programs
from recurra.engine.forward_mode.sweeps import SweepPrograms
from recurra.readout import Readout
from recurra.train.learner import StepTargets
from recurra.train.objective import auto, cross_entropy, squared_error
from recurra.train.online.compiled_step import CompiledInfluence, InfluencePlan, NotCompiled
from recurra.train.online.compiled_update import rule_of
from recurra.train.online.learner import OnlineLearner
from recurra.train.step_function import StepFunction


def loop_of(
    run: CompiledInfluence, step_fn: StepFunction, feedback: Tensor | None, decay: float | None
) -> OnlineLoop | None:
    """The loop of a network; None for what a loop in Python does: other heads, derived weights, parts of matrices."""
    parts = _parts(run, step_fn, feedback, decay)
    if parts is None:
        return None
    if not run.programs.sheets:
        return OnlineLoop(run, *parts)
    return ChunkLoop(run, *parts) if keeps_all(run.plan.blocks, run.plan.links) else None


def estimate_loop(plan: InfluencePlan, batch: int, step_fn: StepFunction, kind: str) -> EstimateLoop | None:
    """The loop of an algorithm that carries an estimate; None for what a loop in Python does."""
    factors = kind == "kronecker"
    try:
        run = CompiledInfluence(plan, batch, whole=factors, programs=Programs if factors else SweepPrograms)
    except NotCompiled:
        return None
    parts = _parts(run, step_fn)
    return None if parts is None else (KroneckerLoop if factors else EstimateLoop)(run, *parts, kind)


def _parts(
    run: CompiledInfluence, step_fn: StepFunction, feedback: Tensor | None = None, decay: float | None = None
) -> tuple[dict[tuple[int, str], Tensor], LinearHead] | None:
    """The parameters by the tensors that a compiled step reads, and the head."""
    weights, head = run.plan.weights, _head(step_fn, feedback, decay)
    tied = len({id(p) for p in step_fn.recurrent.values()}) < len(step_fn.recurrent)
    is_read_as_it_is = all(weights.is_direct(*key) or weights.is_constant(*key) for key in run.plan.shapes)
    if head is None or tied or not is_read_as_it_is:
        return None
    keys = {(block.cell, block.weight) for block in run.plan.blocks}
    parameters = {}
    for name, parameter in step_fn.recurrent.items():
        cell, own = name.split(".", 1)
        options = [key for key in ((int(cell), own), (int(cell), START + own)) if key in keys]
        if len(options) > 1:  # a weight that is the first state, too
            return None
        parameters[options[0] if options else (int(cell), own)] = parameter
    return parameters, head


def _head(step_fn: StepFunction, feedback: Tensor | None, decay: float | None) -> LinearHead | None:
    head, layer = step_fn.head, step_fn.layer
    assert layer is not None
    if head._forward_hooks or head._forward_pre_hooks or head._backward_hooks or head._backward_pre_hooks:
        return None
    if type(head) is nn.Identity:
        return LinearHead(layer.output_size, layer.output_size, feedback=feedback)
    if type(head) is nn.Linear:
        weight, bias = head.weight, head.bias
    elif type(head) is Readout and not head.softmax:
        weight, bias = head.V, head.b
    else:
        return None
    given = [t for t in (weight, bias, feedback) if t is not None]
    if any(t.dtype != step_fn.like.dtype or not t.is_contiguous() or t.device.type != "cpu" for t in given):
        return None
    return LinearHead(weight.shape[1], weight.shape[0], weight, bias, weight if feedback is None else feedback, decay)


def updates_in(loop: OnlineLoop, learner: OnlineLearner, x: Tensor, targets: StepTargets) -> tuple[Any, ...] | None:
    """What `loop.learn` takes for a call; None for losses and optimisers that a loop in Python serves."""
    found = targets_of(learner.loss, targets, loop.head.outputs, loop.run.dtype)
    if found is None or not learner.updates_plainly:
        return None
    counts = targets.counts.contiguous()
    every = targets.total == counts.numel()
    updates = 1 if learner.update == "call" else len(counts) if every else int(counts.any(1).sum())
    rule = rule_of(learner.optimizer, loop.parameters, learner.clip, updates)
    return None if rule is None else (x.detach().to(loop.run.dtype).contiguous(), found[0], counts, found[1], rule)


def targets_of(loss: Any, targets: StepTargets, outputs: int, dtype: torch.dtype) -> tuple[Tensor, str] | None:
    """Targets as the loop reads them, and its loss; None for another loss, and for targets that an error must name."""
    target = targets.target
    numbers = target.is_floating_point()
    if numbers and loss in (auto, squared_error):
        return (target.to(dtype).contiguous(), "squared error") if target.shape[2] == outputs else None
    if numbers or loss not in (auto, cross_entropy):
        return None
    classes = torch.where(targets.counts, target, 0)
    low, high = torch.aminmax(classes)
    return None if low < 0 or high >= outputs else (classes.long().contiguous(), "cross-entropy")
