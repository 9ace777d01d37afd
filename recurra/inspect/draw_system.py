"""Draws a dynamical system: h_t = f(h_{t-1}), or h_t = f(h_{t-1}, x_t), folded or unfolded (survey figure 1)."""

from .svg import Canvas

RADIUS, STEP, DROP = 24.0, 130.0, 78.0


def draw_system(canvas: Canvas, driven: bool, steps: int) -> None:
    """States as circles, with an arrow f from each to the next; `steps` 0 draws one state with a loop."""
    if steps == 0:
        _draw_state(canvas, 0.0, "t", driven)
        canvas.straight([(16, -18), (16, -52), (64, -52), (64, 0), (RADIUS + 1, 0)])
        canvas.box(64, -30, 26, 15, "box solid", "delay of one step", round_=3)
        canvas.word(64, -30, "−1")
        canvas.label(40, -66, "f")
        return
    middle = (steps - 1) // 2
    for column in range(steps):
        x = column * STEP
        when = "t" if column == middle else f"t{column - middle:+d}"
        _draw_state(canvas, x, when, driven)
        _draw_arrow(canvas, x - STEP + RADIUS if column else x - STEP / 2 - 10, x - RADIUS - 1)
    last = (steps - 1) * STEP
    _draw_arrow(canvas, last + RADIUS, last + STEP / 2 + 10)


def _draw_state(canvas: Canvas, x: float, when: str, driven: bool) -> None:
    canvas.circle(x, 0, RADIUS, "box")
    canvas.label(x, 0, f"h_{{{when}}}")
    if driven:
        canvas.label(x, DROP, f"x_{{{when}}}")
        canvas.straight([(x, DROP - 14), (x, RADIUS + 1)])


def _draw_arrow(canvas: Canvas, start: float, end: float) -> None:
    canvas.straight([(start, 0), (end, 0)])
    canvas.label((start + end) / 2, -16, "f")
