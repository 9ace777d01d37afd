"""Checks the --device option against the devices torch has."""

from recurra.errors import InputError


def check_device(name: str) -> str:
    """The name unchanged if torch has the device: auto, cpu, cuda or cuda:1."""
    import torch

    known = ["auto", "cpu"]
    if torch.cuda.is_available():
        known += ["cuda", *(f"cuda:{k}" for k in range(torch.cuda.device_count()))]
    if name not in known:
        reason = "" if torch.cuda.is_available() else " (torch finds no GPU)"
        raise InputError("--device", repr(name), " or ".join(known) + reason)
    return name
