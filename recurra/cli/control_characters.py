"""Control characters from data, such as escape sequences in labels, are shown and never sent to a terminal."""

import re
from collections.abc import Iterable
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderHook, RenderResult
from rich.measure import Measurement
from rich.segment import Segment

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0 without tab and newline, DEL, C1


def visible(text: str) -> str:
    """The text with control characters as `\\x1b`."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def write_visible(text: str, file: TextIO) -> None:
    """Write text: control characters are shown on a terminal, and go to files and pipes as they are."""
    file.write(visible(text) if file.isatty() else text)


def console(**options: Any) -> Console:
    """A console that shows control characters of what it prints; its own colours are none."""
    made = Console(highlight=False, **options)
    made.push_render_hook(_ShowControl())
    return made


class _ShowControl(RenderHook):
    def process_renderables(self, renderables: Iterable[Any]) -> list[Any]:
        return [_Shown(renderable) for renderable in renderables]


class _Shown:
    """What is printed, with its control characters visible."""

    def __init__(self, renderable: Any):
        self.renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.renderable)
