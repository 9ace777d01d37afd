"""The part of `rc.explain` that describes the kernels of states that are matrices."""

from .runner import CHUNK, MatrixExecutor


def describe(made: MatrixExecutor, source: bool) -> list[str]:
    """Lines on the two kernels; `source`: with their text."""
    lines = []
    for backward in (False, True) if made.trains else (False,):
        kernel, phases = made.kernel(backward, False), made.backward_phases if backward else made.forward_phases
        assert phases is not None
        lines += [
            f"  {'backward' if backward else 'forward'}, before the loop: {len(phases.inputs)} values of all steps",
            f"  {'backward' if backward else 'forward'}, one kernel for all steps: {kernel.layout.describe()}",
            f"    {', '.join(made.matrices)} in registers for the whole sequence"
            + (f"; computed again in chunks of {CHUNK} steps" if backward else ""),
            f"    stores {len(phases.results)} values of each step",
        ]
        if source:
            lines += ["", kernel.text]
    if made.trains:
        lines.append(f"  kept for backward: a matrix every {CHUNK} steps, and {len(made.kept)} values a step")
        lines.append(f"  after the loop: {len(made.runs)} products over all steps, the gradients of the weights")
    return lines
