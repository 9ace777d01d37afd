"""Devices by their names, checked before torch is asked for one that is not there."""

from recurra.errors import InputError


def checked(name: str) -> str:
    """auto, cpu, cuda or cuda:1, where torch has them."""
    import torch

    known = ["auto", "cpu"]
    if torch.cuda.is_available():
        known += ["cuda", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
    if name not in known:
        reason = "" if torch.cuda.is_available() else "; torch sees no GPU here"
        raise InputError("--device", repr(name), " or ".join(known) + reason)
    return name
