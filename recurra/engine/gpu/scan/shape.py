"""The choice of chunks: how a scan is divided among programs."""

from dataclasses import dataclass

UNITS = 64  # of a program: two for each thread of a warp
FEW_STATES = 6  # of a unit: with more, a thread has one unit, so that its states stay in registers
LEAST_CHUNK = 32  # steps
JOINED = 64  # chunks that are joined in the time of a step
MOST_CHUNKS = 65_535  # places of a grid along its third axis
FEWEST_STEPS = 4 * LEAST_CHUNK  # that are divided
FULL = 8  # warps of a multiprocessor from which on a program for each row and block of units hides the memory's latency


@dataclass(frozen=True)
class ScanShape:
    """How a scan over `steps` is divided. One chunk: no other kernels precede the last one."""

    units: int  # of a program, a power of two
    blocks: int  # programs for all units of a row
    chunk: int  # steps
    chunks: int


def choose_shape(
    steps: int, batch: int, width: int, processors: int, states: int = 1, joins: bool = False
) -> ScanShape:
    """One chunk where rows and units fill the card, or where steps are few. Else about as many chunks as a chunk has
    steps: programs go through the steps of a chunk one after another, and then through the chunks, unless many of them
    are joined at once."""
    units = min(UNITS if states <= FEW_STATES else UNITS // 2, 1 << (width - 1).bit_length())
    blocks = -(-width // units)
    chunk = steps
    if steps >= FEWEST_STEPS and batch * blocks < FULL * processors:
        equal = (steps - 1) // JOINED if joins else steps - 1
        chunk = max(LEAST_CHUNK, 1 << round(equal.bit_length() / 2))
        while -(-steps // chunk) > MOST_CHUNKS:
            chunk *= 2
    return ScanShape(units, blocks, chunk, -(-steps // chunk))
