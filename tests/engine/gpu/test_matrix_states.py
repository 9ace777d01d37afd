"""Kernels of states that are matrices: in Triton's interpreter, and as machine code."""

import pytest
import torch
from engine.gpu.interpreted_matrix import OWN
from engine.gpu.test_interpreted import run_in_the_interpreter

import recurra as rc
from recurra.engine.gpu.matrix.runner import MatrixExecutor
from recurra.engine.gpu.persistent.launch import load_module
from recurra.engine.ir.buffers import BufferRef, Role
from recurra.engine.ir.lowering import Unsupported
from recurra.engine.plan.planner import plan
from recurra.engine.traced_step import trace_in_clean_context

CELLS = (
    *("fast_weights", "linear_transformer", "delta_net", "gated_delta_net", "mlstm"),
    *("retention", "gla", "rwkv6", "rwkv7"),
)
SINGLE = (Role.CHECKPOINT, Role.CHUNK, Role.TOTAL, Role.SCRATCH, Role.INPUT_PRODUCT, Role.KEPT)


def executor(cell: rc.Cell) -> MatrixExecutor:
    return MatrixExecutor(plan(cell, trace_in_clean_context(cell), train=True, needs_x=True), torch.bfloat16)


def test_a_few_cells():
    assert "with resets" in run_in_the_interpreter("32", ["HeadSum"], "interpreted_matrix.py")


@pytest.mark.slow
def test_all_cells():
    names = [*CELLS, *OWN]
    printed = run_in_the_interpreter("32", names, "interpreted_matrix.py")
    assert printed.count("\n") == 2 * len(names) + 1 + len(OWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gated_delta_net", "mlstm", "fast_weights"])
def test_kernels_become_machine_code(name: str):
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    options = {} if name == "fast_weights" else {"heads": 4}
    made = executor(rc.layer(name, 32, 64 if name == "fast_weights" else 256, **options).cell_list[0])
    for backward in (False, True):
        source = made.kernel(backward, True)
        types = {f"a{i}": f"*{_number(buffer)}" for i, buffer in enumerate(source.arguments)}
        aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(types))}
        text = ASTSource(load_module(source.text).kernel, types | dict.fromkeys(("steps", "batch"), "i32"), {}, aligned)
        options = {"num_warps": source.layout.warps}
        code = triton.compile(text, target=GPUTarget("cuda", 90, 32), options=options)
        assert len(code.asm["cubin"]) > 0


def _number(buffer: BufferRef) -> str:
    return "i32" if buffer.role is Role.LENGTHS else "fp32" if buffer.role in SINGLE else "bf16"


def test_programs_share_heads_and_columns():
    made = executor(rc.layer("gla", 8, 128, heads=2).cell_list[0])
    for backward in (False, True):
        layout = made.kernel(backward, False).layout
        assert [axis.size for axis in layout.outer] == [2]
        assert layout.blocks * layout.width == 64
        assert layout.warps == 1


def test_memory_is_far_below_a_matrix_a_step():
    made = executor(rc.layer("gla", 8, 128, heads=2).cell_list[0])
    steps, batch = 1024, 2
    kept = sum(tensor.numel() for tensor in made.kept_like(torch.empty(steps, batch, 8), False))
    assert kept < steps * batch * made.size / 4


def test_a_matrix_too_large_for_a_program_is_refused_by_name():
    with pytest.raises(Unsupported, match="a matrix of 65536 numbers in one program"):
        executor(rc.layer("fast_weights", 4, 256).cell_list[0])


def test_numbers_in_another_order_without_a_matrix_are_refused():
    class Turned(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x", "h")

        def step(self, x, h):
            return torch.tanh(self.a(x, h)).flip(-1)

    with pytest.raises(Unsupported, match="in another order on the GPU"):
        executor(Turned(3, 4))
