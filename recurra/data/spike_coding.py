"""Numbers as spikes: by how often, or by when."""

import torch
from torch import Tensor

from ..argument_checks import instance_of
from ..errors import InputError

__all__ = ["latency_code", "rate_code"]


def rate_code(values: Tensor, steps: int, generator: torch.Generator | None = None) -> Tensor:
    """Rate coding: each value is the probability of a spike at every step.

    **Arguments**

    - `values`: (…), between 0 and 1. `steps`: T.
    - `generator`: of the random numbers; None is torch's global one.

    **Returns** spikes of 0 and 1, (T, …), in the dtype of the values.

    **Example**

        >>> spikes = rc.data.rate_code(torch.tensor([0.0, 0.3, 1.0]), steps=1000)
        >>> spikes.mean(0).round(decimals=1)
        tensor([0.0000, 0.3000, 1.0000])
    """
    values = _shares(values, steps)
    wide = torch.promote_types(values.dtype, torch.float32)  # half precision draws too few different numbers
    drawn = torch.rand((steps, *values.shape), generator=generator, dtype=wide, device=values.device)
    return (drawn < values).to(values.dtype)


def latency_code(values: Tensor, steps: int, threshold: float = 0.01) -> Tensor:
    """Latency coding: one spike each, the earlier the larger the value; 1 spikes at the first step.

    **Arguments**

    - `values`: (…), between 0 and 1. `steps`: T.
    - `threshold`: values up to it do not spike.

    **Returns** spikes of 0 and 1, (T, …), in the dtype of the values; the time is linear in the value.

    **Example**

        >>> rc.data.latency_code(torch.tensor([1.0, 0.5, 0.0]), steps=3)
        tensor([[1., 0., 0.],
                [0., 1., 0.],
                [0., 0., 0.]])
    """
    values = _shares(values, steps)
    wide = values.to(torch.promote_types(values.dtype, torch.float32))  # half precision tells 256 times apart
    when = torch.round((1 - wide) * (steps - 1))
    times = torch.arange(steps, dtype=wide.dtype, device=values.device).view(-1, *(1,) * values.dim())
    return ((times == when) & (values > threshold)).to(values.dtype)


def _shares(values: Tensor, steps: int) -> Tensor:
    instance_of("values", values, Tensor, "a tensor of floats between 0 and 1")
    if not values.is_floating_point() or not bool(((values >= 0) & (values <= 1)).all()):
        raise InputError(
            "values", f"{values.dtype}, from {values.min():g} to {values.max():g}", "floats between 0 and 1"
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise InputError("steps", steps, "a whole number of at least 1")
    return values
