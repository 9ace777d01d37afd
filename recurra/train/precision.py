"""Choice of device, and mixed precision with loss scaling."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recurra.errors import UnknownNameError
from recurra.layer_arguments import device_of

PRECISIONS = ("auto", "float32", "bfloat16", "float16")


def choose_device(model: nn.Module, device: str | torch.device = "auto") -> torch.device:
    """The given device. "auto": the model's device if it is not the CPU, else a GPU if there is one, else the CPU."""
    if device != "auto":
        return device_of(device)
    here = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    if here.type != "cpu" or not torch.cuda.is_available():
        return here
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())


class Precision:
    """Mixed precision: weights keep their dtype, products run in the narrow dtype under autocast."""

    def __init__(self, name: str, device: torch.device, model: nn.Module):
        if name not in PRECISIONS:
            raise UnknownNameError("precision", name, PRECISIONS)
        weights = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        if name == "auto":
            narrow = (
                device.type == "cuda"
                and weights == torch.float32
                and torch.cuda.is_bf16_supported(including_emulation=False)
            )
            name = "bfloat16" if narrow else "float32"
        self.device, self.narrow = device, None if name == "float32" else getattr(torch, name)
        self.name = name if self.narrow else str(weights).removeprefix("torch.")
        # Half precision underflows without a scaled loss; bfloat16 has float32's range.
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.narrow == torch.float16)

    def autocast(self) -> AbstractContextManager:
        return nullcontext() if self.narrow is None else torch.autocast(self.device.type, dtype=self.narrow)

    @property
    def scaled(self) -> bool:
        return self.scaler.is_enabled()

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def unscale(self, optimizer: Optimizer) -> None:
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> None:
        self.scaler.step(optimizer)
        self.scaler.update()

    def state_dict(self) -> dict[str, Any]:
        return self.scaler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state and self.scaled:
            self.scaler.load_state_dict(state)
