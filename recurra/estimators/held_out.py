"""Whether a gain on held-out windows is beyond doubt: it is compared between stretches of time.

Windows that overlap share their errors, and so do windows of different series at the same time: a good year is good for
all of them. What can be told apart is how the gain varies from one stretch of time to the next.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t

from .windows import Origin

FEWEST = 4  # blocks of which two can stop the training and two judge it
FEWEST_MEANS = 3  # whose spread tells anything
MOST_BLOCKS = 16  # more blocks are joined: neighbours are alike
DOUBT = 0.025  # the probability of so large a gain by chance


def time_blocks(origins: Sequence[Origin], lengths: Sequence[int], horizon: int) -> np.ndarray:
    """(n,): the stretch of time of every window, 0 the last before the ends of the series; none shorter than the
    horizon."""
    if not origins:
        return np.zeros(0, dtype=int)
    found = np.array([(lengths[o.series] - horizon - o.at) // horizon for o in origins])
    count = 1 + int(found.max())
    return found * min(count, MOST_BLOCKS) // count


def stop_and_judge(blocks: np.ndarray) -> tuple[list[int], list[int]]:
    """The windows that stop the training, from the first half of the blocks (n,), and those to judge it by, from the
    second. Of fewer than four blocks all do both."""
    if len(blocks) == 0 or blocks.max() < FEWEST - 1:
        return list(range(len(blocks))), list(range(len(blocks)))
    early = blocks > blocks.max() // 2
    return np.flatnonzero(early).tolist(), np.flatnonzero(~early).tolist()


def is_certain(gain: np.ndarray, blocks: np.ndarray) -> bool:
    """Whether the gain (n,) is above zero by a t-test over the means of the blocks (n,); of two, no test tells."""
    means = np.array([gain[blocks == block].mean() for block in np.unique(blocks)])
    count = len(means)
    if count < FEWEST_MEANS:
        return False
    return bool(means.mean() > t.ppf(1 - DOUBT, count - 1) * means.std(ddof=1) / np.sqrt(count))
