"""Linear recurrences in Triton's interpreter: the kernels equal the operations of torch and the loop.

    TRITON_INTERPRET=1 python tests/engine/gpu/interpreted_linear_scan.py STEPSxUNITS …

A program of its own, because the interpreter must be enabled before Triton is imported.
"""

import sys

import torch

from recurra.engine.newton import device_scan
from recurra.engine.newton.linear_scan import linear_scan


def check(steps: int, units: int) -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        a = torch.randn(steps, 1, 1, 1, units, dtype=dtype)  # of any sign, also greater than one
        b = torch.randn(steps, 1, 1, units, dtype=dtype)
        a[steps // 2, ..., 0] = 0.0
        given = a.flatten(1), b.flatten(1)
        torch.testing.assert_close(device_scan.device_scan(*given, backward=False), linear_scan(a, b).flatten(1))
        turned = device_scan.device_scan(*(value.flip(0) for value in given), backward=True).flip(0)
        torch.testing.assert_close(turned, looped(*given))


def looped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    value, rows = torch.zeros_like(b[0]), []
    for factor, term in zip(a, b, strict=True):
        value = factor * value + term
        rows.append(value)
    return torch.stack(rows)


if __name__ == "__main__":
    device_scan.STEPS, device_scan.COLUMNS = 8, 4
    for case in sys.argv[1:]:
        check(*map(int, case.split("x")))
        print(case, flush=True)
