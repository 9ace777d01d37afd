"""Memory estimate of a learning algorithm, checked before it starts."""

import torch

from recurra.errors import InputError

FLOPS = 5e9  # per second, one core on small tensors; the estimate is an order of magnitude


class CostError(InputError):
    """An algorithm needs more memory than `memory_limit`; the message says how much, and what to use instead.

    **Example**

        >>> model = rc.train.Predictor(rc.LSTM(8, 256), 2)
        >>> try:
        ...     rc.train.RTRL(model, memory_limit=2**20)
        ... except rc.train.CostError as error:
        ...     print(error.expected.partition(";")[0])
        at most 1.0 MiB (memory_limit)
    """


def check_cost(algorithm: str, what: str, numbers: float, flops: float, dtype: torch.dtype, limit: int, instead: str):
    """Raise `CostError` if `numbers` of this dtype exceed `limit` bytes. `flops` per step give the time estimate."""
    size = numbers * dtype.itemsize
    if size > limit:
        raise CostError(
            "model",
            f"{what}: {algorithm} would hold {readable(size)} and need about {duration(flops / FLOPS)} a time step",
            f"at most {readable(limit)} (memory_limit); {instead}",
        )


def readable(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:,.1f} {unit}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 3600 else f"{seconds / 3600:,.1f} h"
