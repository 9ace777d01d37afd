"""The loops of feature_banks.cpp in NumPy: the definition of the features, and what runs without a compiler."""

from itertools import combinations

import numpy as np

from .sequences import Sequences

TAPS, RIVALS, UNITS = 9, 8, 8
FILTERS = np.array(list(combinations(range(TAPS), 3)))  # (84, 3): the taps of weight 2; the others weigh -1
ALL = slice(None)


def delayed(x: np.ndarray, dilation: int) -> np.ndarray:
    """(9, T): x at the delays -4d … 4d, 0 beyond its ends."""
    found = np.zeros((TAPS, len(x)), dtype=x.dtype)
    for tap in range(TAPS):
        shift = (tap - 4) * dilation
        low, high = max(0, -shift), min(len(x), len(x) - shift)
        if low < high:
            found[tap, low:high] = x[low + shift : high + shift]
    return found


def delay_line_values(x: np.ndarray, dilation: int, which: np.ndarray | slice = ALL) -> np.ndarray:
    """(F, T): filters of a row at one dilation."""
    taps = delayed(x, dilation)
    return 3 * taps[FILTERS[which]].sum(axis=1) - taps.sum(axis=0)


def counters(u: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(4, F) of values (F, T): share above the threshold, mean excess, mean position, longest run."""
    above = u - thresholds[:, None]
    is_above, steps = above > 0, u.shape[1]
    count = is_above.sum(axis=1)
    some = np.maximum(count, 1)
    position = np.where(count > 0, (is_above * np.arange(steps)).sum(axis=1) / some / steps, -0.1)
    run, longest = np.zeros(len(u)), np.zeros(len(u))
    for column in is_above.T:
        run = np.where(column, run + 1, 0)
        longest = np.maximum(longest, run)
    return np.stack([count / steps, np.where(is_above, above, 0).sum(axis=1) / some, position, longest / steps])


def delay_lines(given: Sequences, views, dilations, counts, offsets, thresholds, out: np.ndarray) -> None:
    for s, rows in enumerate(given.items):
        for g, (view, dilation, count, offset) in enumerate(zip(views, dilations, counts, offsets, strict=True)):
            values, steps = delay_line_values(rows[view], dilation), rows.shape[1]
            margin = 4 * dilation if g % 2 and steps > 8 * dilation else 0
            for j in range(count):
                at = slice(offset + j * len(FILTERS), offset + (j + 1) * len(FILTERS))
                out[s, :, at] = counters(values[:, margin : steps - margin], thresholds[at])


def competitions(given: Sequences, views, dilations, weights: np.ndarray, out: np.ndarray) -> None:
    for s, rows in enumerate(given.items):
        for g, (view, dilation) in enumerate(zip(views, dilations, strict=True)):
            values = weights[g] @ delayed(rows[view], dilation)  # (heats, 8, T)
            winner, loser = values.argmax(axis=1), values.argmin(axis=1)  # (heats, T)
            for k in range(RIVALS):
                out[s, g, :, k] = np.where(winner == k, values[:, k], 0).mean(axis=1)
                out[s, g, :, RIVALS + k] = (loser == k).mean(axis=1)


def resonator_values(x: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """(units, T) of one row; parameters (6, units) are Re a, Im a, Re c, Im c, b, g."""
    a, c = parameters[0] + 1j * parameters[1], parameters[2] + 1j * parameters[3]
    b, g = parameters[4], parameters[5]
    z, y, found = x[0] / (1 - a), x[0] / (1 - b), np.empty((parameters.shape[1], len(x)))
    for t, value in enumerate(x):
        z, y = a * z + value, b * y + value
        found[:, t] = (np.conj(c) * z).real - g * y
    return found


def resonators(given: Sequences, views, backward, parameters, thresholds, out: np.ndarray) -> None:
    for s, rows in enumerate(given.items):
        for block, (view, turned) in enumerate(zip(views, backward, strict=True)):
            at, x = slice(16 * block, 16 * block + 16), rows[view][::-1] if turned else rows[view]
            out[s, :, at] = counters(resonator_values(x, parameters[:, at]), thresholds[at])


def squash(x: np.ndarray) -> np.ndarray:
    """A Padé approximant of tanh."""
    x = np.clip(x, -4.97, 4.97)
    q = x * x
    return x * (135135 + q * (17325 + q * (378 + q))) / (135135 + q * (62370 + q * (3150 + 28 * q)))


def leaky_network_values(x: np.ndarray, W, U, bias, leak) -> np.ndarray:
    """(8, 16, T): the states of a block of 16 networks over one row."""
    h, found = np.zeros(U.shape), np.empty((*U.shape, len(x)))
    for t, value in enumerate(x):
        h = h + leak * (squash(np.einsum("ijl,jl->il", W, h) + U * value + bias) - h)
        found[:, :, t] = h
    return found


def leaky_networks(given: Sequences, views, backward, W, U, bias, leak, thresholds, out: np.ndarray) -> None:
    for s, rows in enumerate(given.items):
        for block, (view, turned) in enumerate(zip(views, backward, strict=True)):
            x = rows[view][::-1] if turned else rows[view]
            values = leaky_network_values(x, W[block], U[block], bias[block], leak[block])
            at = slice(128 * block, 128 * block + 128)
            out[s, :, at] = counters(values.reshape(128, -1), thresholds[block].ravel())
