"""GPU kernels compile to machine code without a card."""

import re

import pytest
import torch
from engine.operation_table import TableCell, cases
from engine.strange_cells import FourStates, InOtherOrders, OneForAll, RowNormalised, TwoChainedProducts
from torch import Tensor

import recurra as rc
from recurra.cell import Cell
from recurra.engine.gpu.persistent.codegen import KernelSource, render
from recurra.engine.gpu.persistent.kernel_builder import KernelSpec
from recurra.engine.gpu.persistent.launch import load_module, rounding
from recurra.engine.gpu.persistent.tiling import Tiling, tiling
from recurra.engine.gpu.stepwise import codegen
from recurra.engine.gpu.stepwise.stages import LITERALS, MAPS, StepSource, WindowBufferRef
from recurra.engine.ir.buffers import BufferRef, Role
from recurra.engine.plan.planner import plan
from recurra.engine.plan.schedule import schedule
from recurra.engine.traced_step import trace_in_clean_context

triton = pytest.importorskip("triton")
HOPPER, PROCESSORS, SHARED = 90, 132, 232_448  # of an H200
NAMES = {torch.bfloat16: "bf16", torch.float32: "fp32"}


def rendered(cell: Cell, backward: bool, dtype: torch.dtype, batch: int, mode: str) -> tuple[KernelSource, Tiling]:
    planned = plan(cell, trace_in_clean_context(cell), train=True, needs_x=False)
    program = planned.backward if backward else planned.forward
    assert program is not None
    order = schedule(program)
    shape = tiling(order, dtype.itemsize, batch, PROCESSORS, SHARED, mode)
    assert shape is not None
    kind = KernelSpec(
        backward, True, True, bits=8 * dtype.itemsize, precision="x3" if dtype == torch.float32 else "tf32"
    )
    return render(order, planned, shape, kind), shape


def assembled(made: KernelSource, warps: int, dtype: torch.dtype, **options: bool):
    """The kernel compiled for a Hopper card."""
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    module = load_module(made.text)
    types = {f"a{i}": f"*{_number(argument, dtype)}" for i, argument in enumerate(made.arguments)}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(types))}
    source = GluonASTSource(module.kernel, types | dict.fromkeys(("steps", "batch", "tiles"), "i32"), {}, aligned)
    return triton.compile(source, target=GPUTarget("cuda", HOPPER, 32), options={"num_warps": warps} | options)


def _number(argument: BufferRef, dtype: torch.dtype) -> str:
    if argument.role is Role.LENGTHS:
        return "i32"
    return "fp32" if argument.role in (Role.SUMS, Role.ROW_SUMS, Role.CARRY) else NAMES[dtype]


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("make", "dtype", "batch"),
    [
        (lambda: rc.layer("lstm", 16, 64).cell_list[0], torch.bfloat16, 16),
        (lambda: rc.layer("lstm", 16, 256).cell_list[0], torch.float32, 64),
        (lambda: rc.layer("gru", 16, 768).cell_list[0], torch.bfloat16, 16),
        (lambda: rc.layer("rnn", 16, 50).cell_list[0], torch.bfloat16, 3),  # rows that are no whole sixteen bytes
        (lambda: RowNormalised(16, 64), torch.float32, 20),
        (lambda: rc.layer("slstm", 16, 256, heads=4).cell_list[0], torch.bfloat16, 16),
        (lambda: TwoChainedProducts(16, 64), torch.bfloat16, 20),
        (lambda: FourStates(16, 64), torch.bfloat16, 20),
    ],
    ids=["lstm", "lstm in 32 bits", "gru", "odd width", "row normalisation", "heads", "two products", "four states"],
)
def test_kernels_become_machine_code(make, dtype: torch.dtype, batch: int, backward: bool):
    made, shape = rendered(make(), backward, dtype, batch, "cooperative")
    code = assembled(made, shape.warps, dtype)
    assert len(code.asm["cubin"]) > 0
    assert "mma.sync" in code.asm["ptx"]
    waits_by_warp = "ld.relaxed.gpu" in code.asm["ptx"]
    assert waits_by_warp == ("inline_asm" in made.text)
    assert code.metadata.shared <= SHARED


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("make", "dtype", "batch"),
    [
        (lambda: rc.layer("gru", 16, 128).cell_list[0], torch.float32, 64),
        (lambda: rc.layer("lstm", 16, 64).cell_list[0], torch.bfloat16, 64),
        (lambda: rc.layer("rnn", 16, 5).cell_list[0], torch.float32, 200),
        (lambda: RowNormalised(16, 50), torch.float32, 20),
    ],
    ids=["gru", "lstm", "few columns", "row normalisation"],
)
def test_kernels_whose_programs_own_a_row(make, dtype: torch.dtype, batch: int, backward: bool):
    made, shape = rendered(make(), backward, dtype, batch, "row_per_program")
    assert shape.row_per_program
    assert not made.exchanged
    code = assembled(made, shape.warps, dtype)
    assert "fma.rn.f32" in code.asm["ptx"]
    assert "mma.sync" not in code.asm["ptx"]


class Winner(Cell):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = h * self.a(x, h) + h
        return (z == z.amax(-1, keepdim=True)) * z


@pytest.mark.slow
def test_a_kernel_that_compares_with_an_extreme_fuses_nothing():
    cell = Winner(16, 64)
    planned = plan(cell, trace_in_clean_context(cell), train=False, needs_x=False)
    assert planned.compares_numbers
    chosen = schedule(planned.forward)
    shape = tiling(chosen, 4, 20, PROCESSORS, SHARED, "row_per_program")
    assert shape is not None
    made = render(chosen, planned, shape, KernelSpec(False, True, False, bits=32, precision="x3"))
    fused = assembled(made, shape.warps, torch.float32)
    as_written = assembled(made, shape.warps, torch.float32, **rounding(planned.compares_numbers))
    counts = [code.asm["ptx"].count("fma.rn.f32") for code in (fused, as_written)]
    assert counts[0] > 0
    assert counts[1] == 0


@pytest.mark.parametrize("mode", ["row_per_program", "cooperative"])
def test_a_number_for_a_whole_row_becomes_a_state(mode: str):
    """Operations on numbers that all columns share are done once, and spread out where they are written."""
    made, shape = rendered(OneForAll(9, 17), False, torch.float32, 5, mode)
    assert len(assembled(made, shape.warps, torch.float32).asm["cubin"]) > 0


def assembled_stages(made: StepSource, dtype: torch.dtype, capability: int) -> list:
    """The kernels of a step, compiled."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, codes = load_module(made.text), []
    for stage in made.stages:
        kinds = [_kind(made, name, dtype) for name in stage.arguments]
        types = {f"a{i}": f"*{kind}" for i, kind in enumerate(kinds)} | {
            "table": "*i64",
            "clock": "*i32",
            "ends": "*i32",
        }
        aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(types))}
        signature = types | dict.fromkeys(("k", "parity", "batch"), "i32")
        source = ASTSource(getattr(module, stage.name), signature, {}, aligned)
        codes.append(triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4}))
    return codes


def _kind(made: StepSource, name: WindowBufferRef, dtype: torch.dtype) -> str:
    if name in (MAPS, LITERALS):
        return "i32" if name == MAPS else "fp32"
    return "fp32" if made.window_buffers[name].wide else NAMES[dtype]


@pytest.mark.parametrize("capability", [75, 80, 90])
@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: rc.layer("gru", 16, 768).cell_list[0], torch.bfloat16),
        (lambda: RowNormalised(16, 300), torch.float32),
        (lambda: FourStates(16, 64), torch.float32),
        pytest.param(lambda: InOtherOrders(16, 40), torch.bfloat16, marks=pytest.mark.slow),
    ],
    ids=["gru", "row normalisation", "four states", "other orders"],
)
def test_kernels_of_a_step_become_machine_code_for_any_card(make, dtype: torch.dtype, capability: int):
    planned = plan(make(), trace_in_clean_context(make()), train=True, needs_x=True)
    for backward, program in enumerate((planned.forward, planned.backward)):
        assert program is not None
        made = codegen.render(schedule(program), planned, bool(backward), True, dtype)
        for code in assembled_stages(made, dtype, capability):
            assert len(code.asm["cubin"]) > 0
            assert "atom." not in code.asm["ptx"]  # sums in no particular order would differ from run to run
            assert "red.global" not in code.asm["ptx"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_every_operation_of_the_table_becomes_machine_code(part: int):
    cell = TableCell(cases()[part::4])
    made, shape = rendered(cell, False, torch.float32, 50, "row_per_program")
    assert len(assembled(made, shape.warps, torch.float32).asm["cubin"]) > 0
    planned = plan(cell, trace_in_clean_context(cell), train=True, needs_x=True)
    assert planned.backward is not None
    for backward, program in enumerate((planned.forward, planned.backward)):
        made = codegen.render(schedule(program), planned, bool(backward), True, torch.float32)
        assert all(len(code.asm["cubin"]) > 0 for code in assembled_stages(made, torch.float32, 80))


def test_addresses_from_the_table_are_read_sixteen_bytes_at_a_time():
    planned = plan(
        cell := rc.layer("lstm", 16, 256).cell_list[0], trace_in_clean_context(cell), train=True, needs_x=True
    )
    assert planned.backward is not None
    for backward, program in ((False, planned.forward), (True, planned.backward)):
        made = codegen.render(schedule(program), planned, backward, True, torch.bfloat16)
        (code,) = assembled_stages(made, torch.bfloat16, HOPPER)
        assert "st.global.b16" not in code.asm["ptx"]
        assert len(re.findall(r"ld\.global\.b16", code.asm["ptx"])) <= 4  # the biases: a number is enough for a thread


def test_gates_share_one_product_forward_and_their_cotangents_one_backward():
    planned = plan(
        cell := rc.layer("lstm", 16, 64).cell_list[0], trace_in_clean_context(cell), train=True, needs_x=True
    )
    assert planned.backward is not None
    shapes = []
    for backward, program in ((False, planned.forward), (True, planned.backward)):
        stages = codegen.render(schedule(program), planned, backward, True, torch.bfloat16).stages
        shapes.append([[(p.deep, p.wide) for p in stage.products] for stage in stages])
    assert shapes == [[[(64, 256)]], [[(256, 64)]]]
