"""Scans over time on the GPU: their chunks, their kernels in Triton's interpreter, and as machine code."""

import pytest
import torch
from engine.gpu.interpreted_scan import OWN
from engine.gpu.test_interpreted import run_in_the_interpreter

import recurra as rc
from recurra.cell import Cell
from recurra.engine.executors import Request, _executor
from recurra.engine.gpu import select
from recurra.engine.gpu.describe import describe as describe_loop
from recurra.engine.gpu.persistent.launch import load_module
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.gpu.scan import run
from recurra.engine.gpu.scan.codegen import PassSource, PassSpec
from recurra.engine.gpu.scan.describe import describe
from recurra.engine.gpu.scan.run import GpuScan
from recurra.engine.gpu.scan.shape import ScanShape, choose_shape
from recurra.engine.gpu.scan_runner import ScanExecutor
from recurra.engine.ir.buffers import BufferRef, Role
from recurra.engine.plan.planner import plan
from recurra.engine.reference import Sequences
from recurra.engine.self_check import STEPS, _steps
from recurra.engine.traced_step import trace_in_clean_context

ZOO = ("min_gru", "min_lstm", "sru", "hgrn", "rg_lru", "gateloop", "lru", "s5", "qrnn", "t_rnn")
CPU = torch.device("cpu")


def on_gpu(cell: Cell, dtype: torch.dtype = torch.bfloat16) -> GpuExecutor:
    return GpuExecutor(plan(cell, trace_in_clean_context(cell), train=True, needs_x=True), dtype)


def of_zoo(name: str, units: int = 8) -> GpuExecutor:
    return on_gpu(rc.layer(name, 16, units).cell_list[0])


# ---------------------------------------------------------------------------------------------------- what is a scan


@pytest.mark.parametrize("name", ZOO)
def test_cells_that_are_affine_in_their_states_are_scanned(name: str):
    made = of_zoo(name)
    assert made.scan is not None, made.why_no_scan
    assert made.scans(steps=2)
    assert not made.scans(steps=1)
    assert "scan over time" in made.way(2, CPU)


def test_a_loop_can_be_asked_for():
    for mode in ("cooperative", select.LOOP):
        with select.only(mode):
            assert not of_zoo("min_gru").scans(steps=100)


def test_other_cells_are_loops():
    assert of_zoo("gru").scan is None
    assert not of_zoo("gru").why_no_scan


def test_a_state_that_a_product_of_another_one_feeds_is_left_to_the_loop_by_name():
    class Mixed(Cell):
        states = ("c", "h")

        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.u, self.w = self.affine("x"), self.affine("c")

        def step(self, x, c, h):
            c = 0.5 * c + self.u(x)
            h = 0.9 * h + self.w(c)
            return h, c, h

    made = on_gpu(Mixed(3, 4))
    assert made.scan is None
    assert made.why_no_scan == "a scan of what a product of another state feeds"


@pytest.mark.parametrize("name", ["s4d", "mamba"])
def test_cells_that_read_rows_in_another_order_are_scans_or_nothing(name: str):
    cell = rc.layer(name, 16, 8).cell_list[0]
    planned = plan(cell, trace_in_clean_context(cell), train=True, needs_x=True)
    request = Request(train=True, needs_x=True, named=False, dtype=torch.float32, device="cuda")
    made = _executor(planned, request, "")
    assert isinstance(made, ScanExecutor)
    assert made.scans(steps=1)
    assert made.obstacle(4, CPU) == ""
    assert "too many numbers" in made.obstacle(2**30, CPU)


def test_many_states_of_a_unit_are_left_to_the_loop_by_name():
    class Many(Cell):
        states = tuple(f"s{i}" for i in range(33))

        def step(self, x, *states):
            return tuple(0.5 * state + x for state in states)

    made = on_gpu(Many(4, 4))
    assert made.scan is None
    assert made.why_no_scan == "33 states at once, in a scan"


def test_products_are_torchs_and_gates_the_kernels():
    made = of_zoo("min_gru").scan
    assert made is not None
    forward, backward = made.parts[False], made.parts[True]
    assert [node.op for node in forward.inputs.values()] == ["product", "product"]
    assert not backward.inputs
    assert {out.buffer.role for out, _ in backward.stores} == {Role.DELTA}
    assert len(backward.totals) == 2


def test_a_state_that_follows_another_is_of_a_higher_level():
    made = on_gpu(OWN["Chain"](3, 4)).scan
    assert made is not None
    assert [[place[0].name for place in block.places] for block in made.parts[False].blocks] == [["c"], ["h"]]
    assert [block.level for block in made.parts[False].blocks] == [1, 2]
    assert [[place[0].name for place in block.places] for block in made.parts[True].blocks] == [["h"], ["c"]]


# ---------------------------------------------------------------------------------------------------- chunks


@pytest.mark.parametrize(
    ("steps", "batch", "width", "expected"),
    [
        (2048, 16, 128, ScanShape(64, 2, 64, 32)),
        (512, 16, 768, ScanShape(64, 12, 32, 16)),
        (4096, 4, 512, ScanShape(64, 8, 64, 64)),
        (16384, 1, 256, ScanShape(64, 4, 128, 128)),
        (1000, 256, 512, ScanShape(64, 8, 1000, 1)),  # rows and units fill the card
        (100, 1, 5, ScanShape(8, 1, 100, 1)),  # few steps
        (2**20, 1, 16, ScanShape(16, 1, 1024, 1024)),
    ],
)
def test_chunks_are_as_many_as_a_chunk_has_steps(steps: int, batch: int, width: int, expected: ScanShape):
    assert choose_shape(steps, batch, width, processors=132) == expected


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(512, (32, 16)), (4096, (32, 128)), (16384, (32, 512)), (65536, (32, 2048)), (2**20, (128, 8192))],
)
def test_where_chunks_are_joined_at_once_they_are_shorter(steps: int, expected: tuple[int, int]):
    found = choose_shape(steps, 1, 256, processors=132, joins=True)
    assert (found.chunk, found.chunks) == expected


def test_chunks_are_not_more_than_a_grid_has_places_for():
    assert choose_shape(2**28, 1, 16, processors=132, joins=True) == ScanShape(16, 1, 8192, 32768)


def test_chunks_of_a_state_that_reads_itself_alone_are_joined_at_once():
    joined = {name: of_zoo(name).scan.parts[False].joins for name in ("min_gru", "sru", "lru", "gateloop")}
    assert joined == {"min_gru": True, "sru": True, "lru": False, "gateloop": False}


def test_where_a_unit_has_many_states_a_thread_has_one_unit():
    assert choose_shape(2048, 1, 256, processors=132, states=16) == ScanShape(32, 8, 64, 32)


def test_a_kernel_finds_the_effects_of_as_many_states_as_registers_hold():
    cell = rc.layer("s4d", 8, 40).cell_list[0]
    made = GpuScan(plan(cell, trace_in_clean_context(cell), train=True, needs_x=True), torch.float32)
    scan = made.parts[False]
    assert scan.states == 32
    assert [len(group) for group in scan.groups(1)] == [4, 4, 4, 4]  # pairs
    assert [block for group in scan.groups(1) for block in group] == scan.blocks
    written = made.chunks_kernel(False, 1, 3, 32)
    assert "base + 1 <" in written.text  # several chunks at once
    assert len({argument for argument in written.arguments if "effect" in str(argument)}) == 8


def test_the_self_check_has_a_border_between_chunks_where_the_call_has_one():
    made = of_zoo("min_gru")

    def checked(steps: int, batch: int) -> int:
        return _steps(made, Sequences(torch.zeros(steps, batch, 16), ()), {})

    assert made.scan is not None
    assert checked(4096, 2) == 128
    assert made.scan.shape(checked(4096, 2), 2, CPU).chunks > 1
    assert checked(100, 2) == checked(4096, 4096) == STEPS  # one chunk each


def test_the_description_names_chunks_and_kernels():
    made = of_zoo("sru").scan
    assert made is not None
    text = "\n".join(describe(made, 4096, 1, CPU, source=True))
    assert "forward: a scan in 128 chunks of 32 steps, all at once" in text
    assert "by torch, for all steps before: 4 values that mix units" in text
    assert text.count("def kernel(") == 4
    assert "in one chunk" in "\n".join(describe(made, 50, 1, CPU, source=False))


# ---------------------------------------------------------------------------------------------------- kernels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chunk", "names"),
    [("0", ["sru", "Chain"]), ("3", ["min_gru:1", "lru", "Choice", "Many:3", "Averaged", "qrnn", "mamba:2"])],
)
def test_cells_in_the_interpreter(chunk: str, names: list[str]):
    assert run_in_the_interpreter(chunk, names, "interpreted_scan.py").count("\n") == 3 * len(names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("min_gru", torch.bfloat16),
        ("lru", torch.float32),
        ("Chain", torch.bfloat16),
        ("mamba", torch.bfloat16),
        ("s4d", torch.float32),
    ],
)
def test_kernels_become_machine_code(name: str, dtype: torch.dtype):
    cell = OWN[name](256, 256) if name in OWN else rc.layer(name, 256, 256).cell_list[0]
    made = GpuScan(plan(cell, trace_in_clean_context(cell), train=True, needs_x=True), dtype)
    units = made.shape(4096, 1, CPU).units
    for backward, scan in made.parts.items():
        for level in range(scan.levels + 1):
            for group in range(len(scan.groups(level)) if level else 1):
                spec = PassSpec(backward, True, True, made.exact, units, level, group)
                assembled(made, made.step_kernel(spec), ("steps", "batch", "chunk"))
                if level:
                    assembled(made, made.chunks_kernel(backward, level, group, 32), ("batch", "chunks"))


@pytest.mark.slow
def test_the_kernel_that_joins_chunks_becomes_machine_code():
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, sizes = run._join_kernel(), {"CHUNKS": run.JOINED_CHUNKS, "UNITS": run.JOINED_UNITS}
    types = {"effect": "*fp32", "factor": "*fp64", "given": "*bf16", "start": "*fp32"}
    types = {name: types.get(name, "constexpr" if name in sizes else "i32") for name in kernel.arg_names}
    known = {(kernel.arg_names.index(name),): size for name, size in sizes.items()}
    options = {"num_warps": run.JOINED_WARPS}
    code = triton.compile(ASTSource(kernel, types, known), target=GPUTarget("cuda", 90, 32), options=options)
    assert len(code.asm["cubin"]) > 0


def assembled(made: GpuScan, source: PassSource, numbers: tuple[str, ...]) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    types = {f"a{i}": f"*{_number(made, argument)}" for i, argument in enumerate(source.arguments)}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(types))}
    text = GluonASTSource(load_module(source.text).kernel, types | dict.fromkeys(numbers, "i32"), {}, aligned)
    code = triton.compile(text, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    assert len(code.asm["cubin"]) > 0


def _number(made: GpuScan, argument: BufferRef | str) -> str:
    if isinstance(argument, str):
        return "fp64" if argument.startswith("factor") else "fp32"
    if argument.role is Role.LENGTHS:
        return "i32"
    is_wide = any(argument in scan.wide for scan in made.parts.values())
    return "fp32" if is_wide or made.dtype == torch.float32 else "bf16"


def test_a_loop_is_described_where_steps_are_one():
    made = of_zoo("min_gru")
    assert "one kernel for all steps" in "\n".join(describe_loop(made, 3, CPU, source=False))
