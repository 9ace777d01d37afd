"""Tile functions of the generated kernels in Gluon, Triton's layer with explicit layouts, for NVIDIA GPUs.

A program owns U columns and BT rows at a time, on S warps. Its values are (BT, U) tiles of one or two elements per
thread. In a product each warp multiplies its own part of the depth, loaded from memory straight into the registers of
the tensor cores; the partial sums are added through shared memory.

Programs exchange values through memory that is filled with all-one bits before the launch. An element is complete when
its bits differ from that, so neither flags nor fences nor barriers are needed, and no order of memory operations is
assumed. All ones is a NaN that no operation produces, and `publish` never writes it.

A program that owns a whole row (BT = 1) multiplies without tensor cores, which take at least sixteen rows.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as L
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from . import tiles_common

jit = gluon.jit
constexpr = L.constexpr
DIALECT = "gluon"

choose = tiles_common.bind(tiles_common.choose, globals())
load_f32 = tiles_common.bind(tiles_common.load_f32, globals())
load_raw = tiles_common.bind(tiles_common.load_raw, globals())
store = tiles_common.bind(tiles_common.store, globals())
longest = tiles_common.bind(tiles_common.longest, globals())
any_unset = tiles_common.bind(tiles_common.any_unset, globals())
has_nan = tiles_common.bind(tiles_common.has_nan, globals())
load_weights = tiles_common.bind(tiles_common.load_weights, globals())
load_matrix = tiles_common.bind(tiles_common.load_matrix, globals())
vector_matrix = tiles_common.bind(tiles_common.vector_matrix, globals())
max_of_rows = tiles_common.bind(tiles_common.max_of_rows, globals())
reduce_columns = tiles_common.bind(tiles_common.reduce_columns, globals())
store_column_sums = tiles_common.bind(tiles_common.store_column_sums, globals())
square = tiles_common.bind(tiles_common.square, globals())
own_columns = tiles_common.bind(tiles_common.own_columns, globals())
squares_around = tiles_common.bind(tiles_common.squares_around, globals())


# ---------------------------------------------------------------------------------------------------- layouts


@triton.constexpr_function
def tile_layout(BT, U, S):
    """(BT, U): neighbouring columns of a row on neighbouring threads."""
    if BT == 1:
        return L.SliceLayout(1, matrix_layout(BT, U, S))
    mine = min(U, max(1, BT * U // (32 * S)))
    threads = min(32, U // mine)
    return L.BlockedLayout([1, mine], [32 // threads, threads], [S, 1], [1, 0])


@triton.constexpr_function
def matrix_layout(BT, U, S):
    """(BT, U, U), row, depth and column, for a program that owns a row: sixteen bytes of depth per thread."""
    share = 32 * S // U  # threads of a column
    return L.BlockedLayout([BT, 4, 1], [1, share, 32 // share], [1, 1, S], [1, 2, 0])


@triton.constexpr_function
def partials_layout(BT, U, S):
    """(S, BT, U): like `tile_layout`, with all S partial sums on the thread that adds them."""
    mine = min(U, max(1, BT * U // (32 * S)))
    threads = min(32, U // mine)
    return L.BlockedLayout([S, 1, mine], [1, 32 // threads, threads], [1, S, 1], [2, 1, 0])


@triton.constexpr_function
def accumulator_layout(S):
    return L.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[S, 1, 1], instr_shape=[1, 16, 8])


@triton.constexpr_function
def operand_layout(S, side, BITS):
    """Sixteen bytes of depth per thread; any order within the depth will do, as long as both sides use the same."""
    mma = L.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[S, 1, 1], instr_shape=[1, 16, 8])
    return L.DotOperandLayout(side, mma, 128 // BITS)


@triton.constexpr_function
def vector_layout(S):
    """(S, 8, 4): one element per thread, for the sixteen bytes that it holds of eight rows of an operand."""
    lanes = [[0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 2, 0], [0, 4, 0]]
    warps = [[1 << i, 0, 0] for i in range(S.bit_length() - 1)]
    return L.DistributedLinearLayout([], lanes, warps, [], [S, 8, 4])


@triton.constexpr_function
def unit_layout(U):
    """(U,) on one warp: neighbouring units on a thread."""
    return L.BlockedLayout([max(1, U // 32)], [32], [1], [0])


@triton.constexpr_function
def next_power_of_two(n):
    return 1 << (n - 1).bit_length()


# ---------------------------------------------------------------------------------------------------- indices


@gluon.jit
def rows(first, BT: constexpr, U: constexpr, S: constexpr):
    return L.expand_dims(first + L.arange(0, BT, layout=L.SliceLayout(1, tile_layout(BT, U, S))), 1)  # (BT, 1)


@gluon.jit
def column_range(BT: constexpr, U: constexpr, S: constexpr):
    return L.arange(0, U, layout=L.SliceLayout(0, tile_layout(BT, U, S)))  # (U,)


@gluon.jit
def columns(first, BT: constexpr, U: constexpr, S: constexpr):
    return L.expand_dims(first + column_range(BT, U, S), 0)  # (1, U)


@gluon.jit
def zeros(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([BT, U], L.float32, tile_layout(BT, U, S))


@gluon.jit
def unit_range(U: constexpr):
    return L.arange(0, U, layout=unit_layout(U))


@gluon.jit
def unit_zeros(U: constexpr):
    return L.zeros([U], L.float32, unit_layout(U))


@gluon.jit
def axis_range(count: constexpr, layout: constexpr, axis: constexpr):
    """0, 1, … along one axis of three."""
    if axis == 0:
        line = L.arange(0, count, layout=L.SliceLayout(1, L.SliceLayout(2, layout)))
        return L.expand_dims(L.expand_dims(line, 1), 2)
    elif axis == 1:
        line = L.arange(0, count, layout=L.SliceLayout(0, L.SliceLayout(2, layout)))
        return L.expand_dims(L.expand_dims(line, 0), 2)
    else:
        line = L.arange(0, count, layout=L.SliceLayout(0, L.SliceLayout(1, layout)))
        return L.expand_dims(L.expand_dims(line, 0), 1)


# ---------------------------------------------------------------------------------------------------- exchange


@gluon.jit
def publish(pointer, value, mask):
    """Store values that other programs wait for; a NaN of all ones is stored as another NaN."""
    value = value.to(pointer.dtype.element_ty)
    if pointer.dtype.element_ty.primitive_bitwidth == 32:
        bits = value.to(L.int32, bitcast=True)
        bits = L.where(bits == -1, 0x7FFFFFFF, bits)
    else:
        bits = value.to(L.int16, bitcast=True)
        bits = L.where(bits == -1, 0x7FFF, bits).to(L.int16)
    L.store(pointer, bits.to(pointer.dtype.element_ty, bitcast=True), mask=mask)


# ------------------------------------------------------------------------------------------------ cooperative


@gluon.jit
def weight_buffer(count: constexpr, KC: constexpr, U: constexpr, S: constexpr, like):
    """Shared memory for weights that do not fit into registers."""
    layout: constexpr = L.SwizzledSharedLayout(1, 1, 1, [1, 2, 0])
    return L.allocate_shared_memory(like.dtype.element_ty, [count, S, KC, U], layout)


@gluon.jit
def store_weights(buffer, number: constexpr, tile):
    buffer.index(number).store(tile)


@gluon.jit
def load_stored_weights(buffer, number: constexpr, S: constexpr):
    return buffer.index(number).load(operand_layout(S, 1, buffer.dtype.primitive_bitwidth))


@gluon.jit
def _operand_pointers(pointer, first, stride: constexpr, start: constexpr, KC: constexpr, BT: constexpr, S: constexpr):
    layout: constexpr = operand_layout(S, 0, pointer.dtype.element_ty.primitive_bitwidth)
    k = start + axis_range(S, layout, 0) * KC + axis_range(KC, layout, 2)
    r = first + axis_range(BT, layout, 1)
    return pointer + r * stride + k, r, k


@gluon.jit
def load_operand(
    pointer,
    valid,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    depth: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """(S, BT, KC): the left operand of a product; zeros unless `valid`."""
    at, r, k = _operand_pointers(pointer, first, stride, start, KC, BT, S)
    mask = (r < batch) & valid
    if start + S * KC > depth:
        mask = mask & (k < depth)
    return L.load(at, mask=mask, other=0.0, cache_modifier=".cg")


@gluon.jit
def vector_pointers(
    pointer,
    valid,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    depth: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """(S, 8, 4): addresses of sixteen bytes each in the first eight rows; zero where nothing is to be loaded."""
    layout: constexpr = vector_layout(S)
    k = start + axis_range(S, layout, 0) * KC + axis_range(4, layout, 2) * (KC // 4)
    r = first + axis_range(8, layout, 1)
    mask = (r < batch) & valid & (k < depth)
    return L.where(mask, (pointer + r * stride + k).to(L.int64), 0)


@gluon.jit
def probe_pointers(
    pointer,
    valid,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    depth: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """(S, 8, 4): addresses of sixteen bytes of every program a warp waits for, up to 32, in the row stored last."""
    layout: constexpr = vector_layout(S)
    k = start + (axis_range(8, layout, 1) * S + axis_range(S, layout, 0)) * KC + axis_range(4, layout, 2) * (KC // 4)
    return L.where((k < depth) & valid, (pointer + L.minimum(first + BT - 1, batch - 1) * stride + k).to(L.int64), 0)


@gluon.jit
def valid_rows(first, batch, S: constexpr):
    """(S, 8, 4): how many of the rows r, r + 8, … that a thread loads are inside the batch."""
    layout: constexpr = vector_layout(S)
    return (
        batch - first + 7 - axis_range(8, layout, 1) + axis_range(S, layout, 0) * 0 + axis_range(4, layout, 2) * 0
    ) // 8


@gluon.jit
def unpack_operand(words, like, BT: constexpr, S: constexpr):
    """(S, BT, KC) in the layout of the tensor cores, from 32-bit words (S, 8, 4, row and word as axes of two)."""
    bits: constexpr = like.dtype.element_ty.primitive_bitwidth
    if bits == 16:
        low = words.to(L.int16).to(like.dtype.element_ty, bitcast=True)
        high = (words >> 16).to(L.int16).to(like.dtype.element_ty, bitcast=True)
        found = L.join(low, high)
    else:
        found = words.to(like.dtype.element_ty, bitcast=True)
    found = L.permute(L.reshape(found, [S, 8, 4, BT // 8, 128 // bits]), [0, 3, 1, 2, 4])
    return L.convert_layout(L.reshape(found, [S, BT, 512 // bits]), operand_layout(S, 0, bits), assert_trivial=True)


@gluon.jit
def operand_unset(
    pointer,
    valid,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    depth: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """Whether any element of the operand is not written yet."""
    at, r, k = _operand_pointers(pointer, first, stride, start, KC, BT, S)
    return any_unset(L.load(at, mask=(r < batch) & (k < depth) & valid, other=0.0, volatile=True))


@gluon.jit
def probe_unset(
    pointer, valid, first, batch, stride: constexpr, depth: constexpr, BT: constexpr, U: constexpr, S: constexpr
):
    """Whether an element is not written yet, probing one per program in the last row: a cheap loop condition."""
    programs: constexpr = next_power_of_two((depth + U - 1) // U)
    program = L.arange(0, programs if programs > 32 * S else 32 * S, layout=L.BlockedLayout([1], [32], [S], [0]))
    at = pointer + L.minimum(first + BT - 1, batch - 1) * stride + program * U
    return any_unset(L.load(at, mask=(program * U < depth) & valid, other=0.0, cache_modifier=".cg"))


@gluon.jit
def zero_accumulator(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([S, BT, U], L.float32, accumulator_layout(S))


@gluon.jit
def _round_to_tf32(value):
    """Rounded to the eleven significant bits that tensor cores read of a float32."""
    return ((value.to(L.int32, bitcast=True) + 4096) & -8192).to(L.float32, bitcast=True)


@gluon.jit
def dot(a, w, total, PRECISION: constexpr):
    if PRECISION == "x3":  # float32 as the sum of two TF32 numbers: three products, accumulated in float32
        a_high = _round_to_tf32(a)
        w_high = _round_to_tf32(w)
        none = L.zeros_like(total)
        part = mma_v2(a - a_high, w_high, none, input_precision="tf32")
        part = mma_v2(a_high, w - w_high, part, input_precision="tf32")
        return total + mma_v2(a_high, w_high, part, input_precision="tf32")
    else:
        return mma_v2(a, w, total, input_precision="tf32")


@gluon.jit
def partials_buffer(count: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    """Shared memory for the partial sums of `count` products, one per warp."""
    return L.allocate_shared_memory(L.float32, [count, S, BT, U], L.SwizzledSharedLayout(1, 1, 1, [2, 1, 0]))


@gluon.jit
def store_partials(buffer, number: constexpr, value):
    buffer.index(number).store(value)
    return value


@gluon.jit
def reduce_partials(buffer, number: constexpr, value, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, U): the sum of the warps' partial sums of a product."""
    return L.convert_layout(L.sum(buffer.index(number).load(partials_layout(BT, U, S)), 0), tile_layout(BT, U, S))


# ------------------------------------------------------------------------------------------------ one program per row


@gluon.jit
def operand_slot(BT: constexpr, U: constexpr, S: constexpr):
    """Shared memory for one operand of products."""
    return L.allocate_shared_memory(L.float32, [BT, U], L.SwizzledSharedLayout(1, 1, 1, [1, 0]))


@gluon.jit
def store_slot(slot, value, mask):
    value = L.where(mask, value, 0.0)
    slot.store(value)
    return value


@gluon.jit
def load_slot(slot, value, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, U, 1)."""
    return L.expand_dims(slot.load(L.SliceLayout(2, matrix_layout(BT, U, S))), 2)


# ---------------------------------------------------------------------------------------------------- row sums


@triton.constexpr_function
def parts_layout(BT, U, S, COUNT):
    """(BT, parts): every row on the threads that hold it in `tile_layout`."""
    mine = min(U, max(1, BT * U // (32 * S)))
    threads = min(32, U // mine)
    of_row = max(1, next_power_of_two(COUNT) // threads)
    return L.BlockedLayout([1, of_row], [32 // threads, threads], [S, 1], [1, 0])


@gluon.jit
def publishable(value):
    """The bits of a float32; a NaN of all ones is another NaN."""
    bits = value.to(L.float32).to(L.int32, bitcast=True)
    return L.where(bits == -1, 0x7FFFFFFF, bits)


@gluon.jit
def own_part(pointer, row, live, program, ITEM: constexpr, COUNT: constexpr):
    """(BT, 1): the address of this program's part of a row of COUNT parts of ITEM numbers; zero outside the batch."""
    return L.where(live, (pointer + (row * COUNT + program) * ITEM).to(L.int64), 0)


@gluon.jit
def part_pointers(pointer, first, batch, ITEM: constexpr, COUNT: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, parts): the addresses of all parts; zero where there is none."""
    layout: constexpr = parts_layout(BT, U, S, COUNT)
    r = L.expand_dims(first + L.arange(0, BT, layout=L.SliceLayout(1, layout)), 1)
    p = L.expand_dims(L.arange(0, next_power_of_two(COUNT), layout=L.SliceLayout(0, layout)), 0)
    return L.where((r < batch) & (p < COUNT), (pointer + (r * COUNT + p) * ITEM).to(L.int64), 0)


@gluon.jit
def _of_tile(total, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, 1), from the rows of `parts_layout`: every number is already on the right threads."""
    return L.expand_dims(L.convert_layout(total, L.SliceLayout(1, tile_layout(BT, U, S))), 1)


@gluon.jit
def combine_parts(parts, first, batch, COUNT: constexpr, MAX: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, 1): the sum or the maximum of all programs' parts of a row."""
    if MAX:
        layout: constexpr = parts_layout(BT, U, S, COUNT)
        r = L.expand_dims(first + L.arange(0, BT, layout=L.SliceLayout(1, layout)), 1)
        p = L.expand_dims(L.arange(0, next_power_of_two(COUNT), layout=L.SliceLayout(0, layout)), 0)
        total = max_of_rows(parts, (r < batch) & (p < COUNT))
    else:
        total = L.sum(parts, 1)
    return _of_tile(total, BT, U, S)


@gluon.jit
def combine_squares(
    sums,
    squares,
    mean,
    VALUES: constexpr,
    WIDTH: constexpr,
    COUNT: constexpr,
    BT: constexpr,
    U: constexpr,
    S: constexpr,
):
    """(BT, 1): the sum of squares around `mean`, from each program's sum and squares around the mean of its columns."""
    layout: constexpr = parts_layout(BT, U, S, COUNT)
    p = L.expand_dims(L.arange(0, next_power_of_two(COUNT), layout=L.SliceLayout(0, layout)), 0)
    around = L.expand_dims(L.convert_layout(L.reshape(mean, [BT]), L.SliceLayout(1, layout)), 1)
    return _of_tile(L.sum(squares_around(sums, squares, around, p, VALUES, WIDTH, U), 1), BT, U, S)
