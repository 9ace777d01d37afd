"""checkpoint=True: the same numbers, and memory that grows with the root of the length."""

import subprocess
import sys

import pytest
import torch
from engines import either_engine, on_either_engine  # noqa: F401
from torch import Tensor

import recurra as rc

PEAK = """
import resource, sys, torch, recurra as rc
torch.set_num_threads(1)
steps, checkpoint = int(sys.argv[1]), sys.argv[2] == "yes"
layer = rc.layer("lstm", 4, 64, checkpoint=checkpoint)
layer(torch.randn(9, 2, 4))[0].sum().backward()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
layer(torch.randn(steps, 64, 4))[0].sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def results(layer: rc.Recurrent, x: Tensor, **given: Tensor) -> list[Tensor]:
    layer.zero_grad()
    leaf = x.clone().requires_grad_()
    y, state = layer(leaf, **given)
    states = state if isinstance(state, tuple) else (state,)
    sum((v * torch.linspace(-1.0, 1.0, v.numel(), dtype=v.dtype).view_as(v)).sum() for v in (y, *states)).backward()
    assert leaf.grad is not None
    gradients = [p.grad for p in layer.parameters() if p.grad is not None]
    return [y.detach(), *(s.detach() for s in states), leaf.grad, *gradients]


@on_either_engine
@pytest.mark.parametrize("name", ["lstm", "gru", "delay_rnn", "lem"])
@pytest.mark.parametrize("kind", ["dense", "ragged", "resets", "both directions"])
def test_the_same_numbers(name: str, kind: str):
    torch.manual_seed(0)
    options = {"bidirectional": True} if kind == "both directions" else {}
    plain = rc.layer(name, 3, 5, dtype=torch.float64, **options)
    saving = rc.layer(name, 3, 5, dtype=torch.float64, checkpoint=True, **options)
    saving.load_state_dict(plain.state_dict())
    given: dict[str, Tensor] = {}
    if kind == "ragged":
        given["lengths"] = torch.tensor([11, 1, 4, 7])
    if kind == "resets":
        given["resets"] = torch.rand(11, 4) < 0.3
    x = torch.randn(11, 4, 3, dtype=torch.float64)
    for ours, theirs in zip(results(saving, x, **given), results(plain, x, **given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-13)


def peak(steps: int, checkpoint: str) -> float:
    """Kilobytes a training step adds to the process."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(steps), checkpoint], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


@pytest.mark.slow
def test_memory_grows_with_the_root_of_the_length():
    kept, saved = peak(1600, "no"), peak(1600, "yes")
    inputs_and_outputs = 1600 * 64 * (4 + 2 * 64) * 4 / 1024  # x, y and the cotangent of y cannot be spared
    assert saved - inputs_and_outputs < 0.4 * (kept - inputs_and_outputs)
