"""How a parameter of a fresh cell begins, in words, read off the numbers themselves."""

import math

import torch
from torch import Tensor

PLACES = 3  # digits of a number in words
ENOUGH = 64  # numbers from which a distribution can be told
FLAT = 2.0  # the largest number over the standard deviation: about √3 if numbers are spread evenly, more if normally


def describe(parameter: Tensor, again: Tensor) -> str:
    """`0`, `orthogonal`, `identity`, or the range or spread that its numbers have.

    `again` is the same parameter of a cell made with another seed: what is equal in both is not random.
    """
    value = parameter.detach().to(torch.float64)
    if not value.numel():
        return ""
    low, high = value.min().item(), value.max().item()
    if low == high:
        return f"{low:.{PLACES}g}"
    if matrix := _matrix(value):
        return matrix
    if torch.equal(parameter, again):
        return f"fixed numbers from {low:.{PLACES}g} to {high:.{PLACES}g}"
    if text := _uniform(torch.stack([value, again.detach().to(torch.float64)])):
        return text
    return f"random: mean {_rounded(value.mean().item())}, deviation {value.std().item():.2g}"


def _uniform(value: Tensor) -> str:
    """The range, and the name of its rule, of a matrix, drawn twice, whose numbers are spread evenly around 0."""
    peak, deviation = value.abs().max().item(), value.std().item()
    if value.dim() != 3 or value.numel() < ENOUGH or peak > FLAT * deviation:
        return ""
    _, rows, columns = value.shape
    rules = {"Glorot": math.sqrt(6 / (rows + columns)), "LeCun": math.sqrt(3 / columns)}
    name, bound = next(((n, b) for n, b in rules.items() if 0.96 * b < peak <= b), ("", peak))
    return f"uniform in ±{bound:.2g}" + (f" ({name})" if name else "")


def _matrix(value: Tensor) -> str:
    """What kind of matrix it is, if it is a known one."""
    if value.dim() != 2 or min(value.shape) == 1:
        return ""
    rows, columns = value.shape
    if rows == columns and torch.equal(value, torch.diag(torch.diag(value))):
        return "identity" if bool((torch.diag(value) == 1).all()) else "diagonal"
    gram = value @ value.T if rows <= columns else value.T @ value
    scale = torch.diag(gram).mean()
    if scale > 0 and torch.allclose(gram, scale * torch.eye(len(gram), dtype=gram.dtype), atol=1e-5 * scale.item()):
        gain = scale.sqrt().item()
        return "orthogonal" if abs(gain - 1) < 1e-4 else f"orthogonal × {gain:.{PLACES}g}"
    return ""


def _rounded(mean: float) -> str:
    return f"{round(mean, 1) + 0.0:g}"
