"""The kernels of linear recurrences: in Triton's interpreter, and as machine code."""

import pytest
from engine.gpu.test_interpreted import run_in_the_interpreter

from recurra.engine.newton import device_scan

CASES = ["1x1", "8x4", "9x5", "70x9", "137x4"]  # one step, a whole chunk, two chunks, two tiles of chunks


@pytest.mark.slow
def test_they_equal_torchs_operations_in_the_interpreter():
    assert run_in_the_interpreter(CASES[0], CASES[1:], "interpreted_linear_scan.py").split() == CASES


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_they_become_machine_code(dtype: str):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sizes = {"STEPS": device_scan.STEPS, "COLUMNS": device_scan.COLUMNS, "backward": True}
    for name in ("chunk_ends", "chunk_starts", "all_steps"):
        kernel = getattr(device_scan._kernels(), name)
        numbers = {"steps": "i32", "chunks": "i32", "width": "i32"} | dict.fromkeys(sizes, "constexpr")
        types = {argument: numbers.get(argument, f"*{dtype}") for argument in kernel.arg_names}
        known = {(i,): sizes[argument] for i, argument in enumerate(kernel.arg_names) if argument in sizes}
        options = {"num_warps": device_scan.WARPS}
        code = triton.compile(ASTSource(kernel, types, known), target=GPUTarget("cuda", 90, 32), options=options)
        assert len(code.asm["cubin"]) > 0
