"""The kernel that gathers rows, in Triton's interpreter, for as many steps and sequences as the command line says.

TRITON_INTERPRET=1 python tests/engine/gpu/interpreted_gather.py 9x5x37 …
"""

import sys

import torch

from recurra.engine.gpu.gather_rows_kernel import kernel

for case in sys.argv[1:]:
    steps, batch, width = map(int, case.split("x"))
    torch.manual_seed(0)
    value, order, lengths = torch.randn(steps, batch, width), torch.randperm(batch), torch.arange(batch)
    padding = torch.arange(steps)[:, None] >= lengths
    for ragged in (False, True):
        given = value.clone()
        if ragged:
            given[:, order] = torch.where(padding[..., None], torch.inf, value[:, order])
        found = torch.empty_like(value)
        sizes = steps * batch, batch, width, ragged, 2, 16
        kernel[(-(-steps * batch // 2),)](given, order, lengths, found, *sizes)
        expected = value[:, order]
        if ragged:
            for row, length in enumerate(lengths.tolist()):
                expected[length:, row] = expected[length - 1, row] if length else 0.0
        assert torch.equal(found, expected), (case, ragged)
    print(case)
