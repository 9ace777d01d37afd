"""The device on which Triton launches a kernel: the current one, wherever the tensors are."""

import contextlib

import torch


def on_device(device: torch.device) -> contextlib.AbstractContextManager:
    """Make a device current, if it is not; nothing on the CPU, where Triton's interpreter runs kernels."""
    is_there = device.type == "cpu" or torch.cuda.current_device() == device.index
    return contextlib.nullcontext() if is_there else torch.cuda.device(device)
