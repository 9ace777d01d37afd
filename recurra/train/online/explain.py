"""What an online learner would do with a model, before anything is run: structure, memory and work, as text."""

from typing import Any

from torch import nn

from recurra.engine.forward_mode.influence import InfluencePlan, NotCompiled
from recurra.train.cost import readable
from recurra.train.online.compiled_step import influence_plan
from recurra.train.step_function import StepFunction


def explain_learner(learner: Any) -> str:
    """The structure that a learner found, the cost of its step, and the cost of the other algorithms."""
    step_fn: StepFunction = learner.step_fn
    name = f"SnAp({learner.n})" if hasattr(learner, "n") else type(learner).__name__
    lines = [f"{name} of {type(learner.model).__name__}: {step_fn.state_size} states, {step_fn.weight_count:,} weights"]
    try:
        steps = learner.n if hasattr(learner, "n") else 1 if getattr(learner, "approximation", None) else None
        plan = influence_plan(step_fn, steps)
    except NotCompiled as reason:
        return "\n".join([*lines, f"  step: by torch.func, not compiled ({reason})"])
    lines.append("  step: compiled")
    lines += _structure(plan)
    lines += ["", "  memory and multiply-adds a step, for one sequence:"]
    lines += [f"    {row}" for row in costs(learner.model)]
    return "\n".join(lines)


def _structure(plan: InfluencePlan) -> list[str]:
    """How ∂s'/∂s and the influence are made."""
    lines = ["  ∂s'/∂s:"]
    for (new, old), kind in plan.links.items():
        how = "unit by unit" if kind == "own" else f"a matrix {new.width} × {old.width}"
        lines.append(f"    {new.label} by {old.label}: {how}")
    lines.append("  influence:")
    for block in plan.blocks:
        parts = [f"{r.label}: {'own unit' if kind == 'own' else 'all units'}" for r, kind in block.kinds.items()]
        name = f"{block.cell}.{block.weight.removeprefix('start:').lstrip('=')}"
        lines.append(f"    {name}, {block.units} × {block.deep}: {', '.join(parts) or 'the output alone'}")
    return lines


def costs(model: nn.Module) -> list[str]:
    """One line for each algorithm: what it carries beside the state, and the multiply-adds that advance it."""
    step_fn = StepFunction(model)
    size, weights, n = step_fn.like.dtype.itemsize, step_fn.weight_count, step_fn.state_size
    exact = influence_plan(step_fn, None, by_any_backend=True)
    near = influence_plan(step_fn, 1, by_any_backend=True)
    local = influence_plan(step_fn, None, local=True, by_any_backend=True)
    units = sum(use.cotangent.width for use in exact.structure.uses)
    rows = [
        ("RTRL", exact.numbers, exact.multiplications),
        ("SnAp(1)", near.numbers, near.multiplications),
        ("KFRTRL", n * units, n * n * units),
        ("UORO, ForwardGradient", weights + n, weights + n * n),
        ("EProp, RFLO", local.numbers, local.multiplications),
    ]
    return [f"{name:<22} {readable(numbers * size):>12} {work:>18,}" for name, numbers, work in rows]
