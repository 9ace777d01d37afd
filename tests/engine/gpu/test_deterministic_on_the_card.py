"""With `torch.use_deterministic_algorithms(True)`, runs on a card give the same bits, or torch names the obstacle."""

import os
import subprocess
import sys

import pytest
from engine.gpu.accuracy import assert_same_bits, layer

PROGRAM = """
import torch
import recurra as rc
from recurra.engine.gpu import select
from recurra.engine.gpu.runner import GpuExecutor

ran, forward = [], GpuExecutor.forward
GpuExecutor.forward = lambda *given, **options: ran.append(1) or forward(*given, **options)
torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
OPTIONS = {}, {"bidirectional": True}, {"modifiers": rc.LayerNorm()}, {"modifiers": rc.VariationalDropout(0.3)}
for mode in ("row_per_program", "cooperative", "stepwise"):
    for options in OPTIONS:
        layer = rc.layer("gru", 32, 64, **options).cuda()
        x = torch.randn(12, 20, 32, device="cuda", requires_grad=True)
        lengths = torch.randint(1, 13, (20,))
        for given in ({}, {"lengths": lengths}):
            found = []
            for _ in range(6):  # of which the last are replayed from a CUDA graph
                torch.manual_seed(1)
                with select.only(mode):
                    y = layer(x, **given)[0]
                    found.append([y, *torch.autograd.grad((y * y).sum(), [x, *layer.parameters()])])
            for other in found[1:]:
                assert all(map(torch.equal, found[0], other)), (mode, options)
assert ran
print("same bits")
"""


def run(config: str | None) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k != "CUBLAS_WORKSPACE_CONFIG"}
    env |= {} if config is None else {"CUBLAS_WORKSPACE_CONFIG": config}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)


@pytest.mark.gpu
def test_the_same_bits_or_an_error_that_names_the_variable():
    assert_same_bits(layer().cell_list[0], runs=2)
    found = run(":4096:8")
    assert found.stdout == "same bits\n", found.stderr[-2000:]
    without = run(None)  # some versions of torch ask for the variable
    assert without.stdout == "same bits\n" or "CUBLAS_WORKSPACE_CONFIG" in without.stderr
