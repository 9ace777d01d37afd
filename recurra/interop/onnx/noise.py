"""The noise of a layer's cells as optional inputs of its file; what is not given, the runtime draws."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from ...draws import Noise
from ...layers import Recurrent
from .graph import Graph


@dataclass(frozen=True)
class NoiseInput:
    """An input of the file, in the layout of x: `u`, or `u.0`, `u.1`, … if the layer has several cells."""

    name: str
    cell: int  # index into Recurrent.cell_list
    mask: str  # key of Cell.masks
    noise: Noise

    def shape(self, layer: Recurrent) -> tuple[int | str, ...]:
        return ("batch", "time", self.noise.size) if layer.batch_first else ("time", "batch", self.noise.size)


def noise_inputs(layer: Recurrent) -> list[NoiseInput]:
    """The noise of all cells, in the order of the file's inputs."""
    cells = layer.cell_list
    return [
        NoiseInput(name if len(cells) == 1 else f"{name}.{k}", k, name, noise)
        for k, cell in enumerate(cells)
        for name, noise in cell.masks.items()
        if isinstance(noise, Noise)
    ]


def write_noise(graph: Graph, given: str, noise: Noise, x: str, is_batch_first: bool) -> str:
    """The given noise, or if it is empty the runtime's own, (T, B, size); x is (T, B, D)."""
    if is_batch_first:
        given = graph.add("Transpose", given, perm=[1, 0, 2])
    kind = "RandomUniform" if noise.distribution == "uniform" else "RandomNormal"
    shape = graph.add("Concat", graph.add("Shape", x, start=0, end=2), graph.integers(noise.size), axis=0)
    drawn = graph.add(f"{kind}Like", graph.add("Expand", graph.number(0.0), shape))
    rows = graph.integers(-1, noise.size)
    both = graph.add("Concat", graph.add("Reshape", given, rows), graph.add("Reshape", drawn, rows), axis=0)
    count = graph.add("Mul", graph.size(x, 0), graph.size(x, 1))
    return graph.add("Reshape", graph.add("Slice", both, graph.integers(0), count, graph.integers(0)), shape)


@contextmanager
def drawn_as(layer: Recurrent, feed: Mapping[str, Tensor]) -> Iterator[None]:
    """Within the block, the cells of the layer draw what the feed holds for the file's inputs."""
    masks: dict[int, dict[str, Tensor]] = {}
    for entry in noise_inputs(layer):
        value = feed[entry.name]
        masks.setdefault(entry.cell, {})[entry.mask] = value.transpose(0, 1) if layer.batch_first else value
    cells = {k: layer.cell_list[k] for k in masks}
    for k, cell in cells.items():
        draw = cell.draw_masks
        cell.__dict__["draw_masks"] = lambda *shape, draw=draw, k=k: draw(*shape) | masks[k]
    try:
        yield
    finally:
        for cell in cells.values():
            cell.__dict__.pop("draw_masks", None)
