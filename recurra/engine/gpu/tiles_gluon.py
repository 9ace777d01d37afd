"""What a rendered kernel is written in, for NVIDIA GPUs: tiles with layouts of our choosing (Triton's Gluon).

A program owns `U` columns of everything and `BT` rows at a time, on `S` warps. Its values are (BT, U) tiles, a number
or two a thread. In a product each warp takes its own share of the depth, straight from memory into the registers in
which the tensor cores want it; the shares are added up through shared memory.

Programs talk through memory that was filled with all-one bits beforehand: a number is there when it differs from that.
No flag, no fence and no barrier stands between the one who writes and the many who wait, and no order of memory
operations is relied upon. All ones is a NaN that no computation gives, and `publish` never writes it.

A program alone has one row, where the tensor cores take sixteen: a few neighbouring threads share a column.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as L
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

jit = gluon.jit
constexpr = L.constexpr
DIALECT = "gluon"


@triton.constexpr_function
def _tile(BT, U, S):
    """How a (BT, U) tile lies on the threads: a row's columns side by side."""
    if BT == 1:
        return L.SliceLayout(1, _cube(BT, U, S))
    mine = min(U, max(1, BT * U // (32 * S)))
    across = min(32, U // mine)
    return L.BlockedLayout([1, mine], [32 // across, across], [S, 1], [1, 0])


@triton.constexpr_function
def _cube(BT, U, S):
    """(BT, U, U), of a program alone: the row, depth and columns. Sixteen bytes of depth side by side on a thread."""
    share = 32 * S // U  # threads of a column
    return L.BlockedLayout([BT, 4, 1], [1, share, 32 // share], [1, 1, S], [1, 2, 0])


@triton.constexpr_function
def _shares(BT, U, S):
    """The same with all shares of a product on the thread that adds them up."""
    mine = min(U, max(1, BT * U // (32 * S)))
    across = min(32, U // mine)
    return L.BlockedLayout([S, 1, mine], [1, 32 // across, across], [1, S, 1], [2, 1, 0])


@triton.constexpr_function
def _mma(S):
    return L.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[S, 1, 1], instr_shape=[1, 16, 8])


@triton.constexpr_function
def _operand(S, side, BITS):
    """Sixteen bytes of depth side by side on a thread: the order within the depth is free, if both sides keep it."""
    mma = L.NVMMADistributedLayout(version=[2, 0], warps_per_cta=[S, 1, 1], instr_shape=[1, 16, 8])
    return L.DotOperandLayout(side, mma, 128 // BITS)


@triton.constexpr_function
def _sixteen_bytes(S):
    """(S, 8, 4): which thread holds which sixteen bytes of eight rows of an operand."""
    lanes = [[0, 0, 1], [0, 0, 2], [0, 1, 0], [0, 2, 0], [0, 4, 0]]
    warps = [[1 << i, 0, 0] for i in range(S.bit_length() - 1)]
    return L.DistributedLinearLayout([], lanes, warps, [], [S, 8, 4])


@triton.constexpr_function
def _power(n):
    return 1 << (n - 1).bit_length()


@gluon.jit
def rows(first, BT: constexpr, U: constexpr, S: constexpr):
    return L.expand_dims(first + L.arange(0, BT, layout=L.SliceLayout(1, _tile(BT, U, S))), 1)  # (BT, 1)


@gluon.jit
def columns(first, BT: constexpr, U: constexpr, S: constexpr):
    return L.expand_dims(first + L.arange(0, U, layout=L.SliceLayout(0, _tile(BT, U, S))), 0)  # (1, U)


@gluon.jit
def zeros(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([BT, U], L.float32, _tile(BT, U, S))


@gluon.jit
def choose(condition, one, other):
    """One of two addresses."""
    return L.where(condition, one, other)


# ---------------------------------------------------------------------------------------------------- reading, writing


@gluon.jit
def read(place, mask):
    return L.load(place, mask=mask, other=0.0).to(L.float32)


@gluon.jit
def fetch(place, mask):
    """As it is: whoever converts it at once waits for it."""
    return L.load(place, mask=mask, other=0.0)


@gluon.jit
def write(place, value, mask):
    L.store(place, value.to(place.dtype.element_ty), mask=mask)


@gluon.jit
def publish(place, value, mask):
    """Write what others wait for."""
    value = value.to(place.dtype.element_ty)
    if place.dtype.element_ty.primitive_bitwidth == 32:
        bits = value.to(L.int32, bitcast=True)
        bits = L.where(bits == -1, 0x7FFFFFFF, bits)
    else:
        bits = value.to(L.int16, bitcast=True)
        bits = L.where(bits == -1, 0x7FFF, bits).to(L.int16)
    L.store(place, bits.to(place.dtype.element_ty, bitcast=True), mask=mask)


@gluon.jit
def _missing(value):
    if value.dtype.primitive_bitwidth == 32:
        return L.max((value.to(L.int32, bitcast=True) == -1).to(L.int32))
    else:
        return L.max((value.to(L.int16, bitcast=True) == -1).to(L.int32))


# ---------------------------------------------------------------------------------------------------- products


@gluon.jit
def _three(count: constexpr, layout: constexpr, axis: constexpr):
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


@gluon.jit
def weights(
    place,
    first,
    across: constexpr,
    down: constexpr,
    wide: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    U: constexpr,
    S: constexpr,
):
    """(S, KC, U): columns `first` and on of a matrix; of its depth, `S` pieces of `KC` from `start`."""
    layout: constexpr = _operand(S, 1, place.dtype.element_ty.primitive_bitwidth)
    k = start + _three(S, layout, 0) * KC + _three(KC, layout, 1)
    u = first + _three(U, layout, 2)
    return L.load(place + u * across + k * down, mask=(u < wide) & (k < deep), other=0.0)


@gluon.jit
def shelf(count: constexpr, KC: constexpr, U: constexpr, S: constexpr, like):
    """Shared memory for weights that the registers have no room for."""
    layout: constexpr = L.SwizzledSharedLayout(1, 1, 1, [1, 2, 0])
    return L.allocate_shared_memory(like.dtype.element_ty, [count, S, KC, U], layout)


@gluon.jit
def keep(shelves, number: constexpr, tile):
    shelves.index(number).store(tile)


@gluon.jit
def kept(shelves, number: constexpr, S: constexpr):
    return shelves.index(number).load(_operand(S, 1, shelves.dtype.primitive_bitwidth))


@gluon.jit
def _operand_place(place, first, stride: constexpr, start: constexpr, KC: constexpr, BT: constexpr, S: constexpr):
    layout: constexpr = _operand(S, 0, place.dtype.element_ty.primitive_bitwidth)
    k = start + _three(S, layout, 0) * KC + _three(KC, layout, 2)
    r = first + _three(BT, layout, 1)
    return place + r * stride + k, r, k


@gluon.jit
def operand(
    place,
    there,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """(S, BT, KC) of what a product multiplies, from `place`; zeros unless `there`."""
    at, r, k = _operand_place(place, first, stride, start, KC, BT, S)
    mask = (r < batch) & there
    if start + S * KC > deep:
        mask = mask & (k < deep)
    return L.load(at, mask=mask, other=0.0, cache_modifier=".cg")


@gluon.jit
def spot(
    place,
    there,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """(S, 8, 4): addresses of sixteen bytes each of the first eight rows; zero where there is nothing to come."""
    layout: constexpr = _sixteen_bytes(S)
    k = start + _three(S, layout, 0) * KC + _three(4, layout, 2) * (KC // 4)
    r = first + _three(8, layout, 1)
    mask = (r < batch) & there & (k < deep)
    return L.where(mask, (place + r * stride + k).to(L.int64), 0)


@gluon.jit
def herald_of(
    place,
    there,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """(S, 8, 4): of the row written last, sixteen bytes of every program a warp waits for, up to 32 of them."""
    layout: constexpr = _sixteen_bytes(S)
    k = start + (_three(8, layout, 1) * S + _three(S, layout, 0)) * KC + _three(4, layout, 2) * (KC // 4)
    return L.where((k < deep) & there, (place + L.minimum(first + BT - 1, batch - 1) * stride + k).to(L.int64), 0)


@gluon.jit
def rows_there(first, batch, S: constexpr):
    """(S, 8, 4): how many rows of the batch a thread meets, of every eighth."""
    layout: constexpr = _sixteen_bytes(S)
    return (batch - first + 7 - _three(8, layout, 1) + _three(S, layout, 0) * 0 + _three(4, layout, 2) * 0) // 8


@gluon.jit
def numbers(words, like, BT: constexpr, S: constexpr):
    """(S, BT, KC) for the tensor cores, from (S, 8, 4, and the bits of the numbers of a row and a word in it)."""
    bits: constexpr = like.dtype.element_ty.primitive_bitwidth
    if bits == 16:
        low = words.to(L.int16).to(like.dtype.element_ty, bitcast=True)
        high = (words >> 16).to(L.int16).to(like.dtype.element_ty, bitcast=True)
        found = L.join(low, high)
    else:
        found = words.to(like.dtype.element_ty, bitcast=True)
    found = L.permute(L.reshape(found, [S, 8, 4, BT // 8, 128 // bits]), [0, 3, 1, 2, 4])
    return L.convert_layout(L.reshape(found, [S, BT, 512 // bits]), _operand(S, 0, bits), assert_trivial=True)


@gluon.jit
def absent(
    place,
    there,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    """Whether any number of it is still to come."""
    at, r, k = _operand_place(place, first, stride, start, KC, BT, S)
    return _missing(L.load(at, mask=(r < batch) & (k < deep) & there, other=0.0, volatile=True))


@gluon.jit
def early(place, there, first, batch, stride: constexpr, deep: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    """Whether a number of anybody's is still to come: one of each program is looked at, so that waiting is cheap."""
    programs: constexpr = _power((deep + U - 1) // U)
    who = L.arange(0, programs if programs > 32 * S else 32 * S, layout=L.BlockedLayout([1], [32], [S], [0]))
    at = place + L.minimum(first + BT - 1, batch - 1) * stride + who * U
    return _missing(L.load(at, mask=(who * U < deep) & there, other=0.0, cache_modifier=".cg"))


@gluon.jit
def nothing(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([S, BT, U], L.float32, _mma(S))


@gluon.jit
def _short(value):
    """Rounded to the eleven bits that a product of 32-bit numbers on tensor cores looks at."""
    return ((value.to(L.int32, bitcast=True) + 4096) & -8192).to(L.float32, bitcast=True)


@gluon.jit
def dot(a, w, total, PRECISION: constexpr):
    if PRECISION == "x3":  # 32-bit numbers as sums of two short ones; sums of products as full ones
        a_high = _short(a)
        w_high = _short(w)
        none = L.zeros_like(total)
        part = mma_v2(a - a_high, w_high, none, input_precision="tf32")
        part = mma_v2(a_high, w - w_high, part, input_precision="tf32")
        return total + mma_v2(a_high, w_high, part, input_precision="tf32")
    else:
        return mma_v2(a, w, total, input_precision="tf32")


@gluon.jit
def undefined(value):
    """Whether any number is NaN: then something may be missing."""
    return L.max((value != value).to(L.int32))


@gluon.jit
def bench(count: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    """Shared memory in which the shares of `count` products meet."""
    return L.allocate_shared_memory(L.float32, [count, S, BT, U], L.SwizzledSharedLayout(1, 1, 1, [2, 1, 0]))


@gluon.jit
def put(place, number: constexpr, value):
    place.index(number).store(value)
    return value


@gluon.jit
def take(place, number: constexpr, value, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, U): the shares of a product, added up."""
    return L.convert_layout(L.sum(place.index(number).load(_shares(BT, U, S)), 0), _tile(BT, U, S))


# ---------------------------------------------------------------------------------------------------- products alone


@gluon.jit
def whole(
    place,
    across: constexpr,
    down: constexpr,
    wide: constexpr,
    deep: constexpr,
    BT: constexpr,
    U: constexpr,
    S: constexpr,
):
    """(1, U, U): all of a matrix."""
    layout: constexpr = _cube(BT, U, S)
    k = _three(U, layout, 1)
    u = _three(U, layout, 2)
    return L.load(place + u * across + k * down, mask=(u < wide) & (k < deep), other=0.0).to(L.float32)


@gluon.jit
def room(BT: constexpr, U: constexpr, S: constexpr):
    """Shared memory for something that products multiply."""
    return L.allocate_shared_memory(L.float32, [BT, U], L.SwizzledSharedLayout(1, 1, 1, [1, 0]))


@gluon.jit
def lay(place, value, mask):
    value = L.where(mask, value, 0.0)
    place.store(value)
    return value


@gluon.jit
def taken(place, value, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, U, 1): what lies there."""
    return L.expand_dims(place.load(L.SliceLayout(2, _cube(BT, U, S))), 2)


@gluon.jit
def times(a, w):
    """(BT, U)."""
    return L.sum(a * w, 1)


# ---------------------------------------------------------------------------------------------------- sums


@gluon.jit
def _largest(value, mask):
    """Of each row; NaN if there is one."""
    undefined_ones = L.max((mask & (value != value)).to(L.int32), 1)
    return L.where(undefined_ones != 0, float("nan"), L.max(L.where(mask, value, float("-inf")), 1))


@gluon.jit
def across(value, mask, LARGEST: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, 1): the sum over this program's columns, or the largest of them."""
    if LARGEST:
        return L.expand_dims(_largest(value, mask), 1)
    else:
        return L.expand_dims(L.sum(L.where(mask, value, 0.0), 1), 1)


@gluon.jit
def row_total(
    place,
    part,
    mine,
    live,
    first,
    batch,
    COUNT: constexpr,
    LARGEST: constexpr,
    BT: constexpr,
    U: constexpr,
    S: constexpr,
):
    """(BT, 1): the sum, or the largest, of every program's part of a row. `place` has a number for each of them."""
    here = rows(first, BT, U, S)
    publish(place + here * COUNT + mine, part, live)
    wide: constexpr = _power(COUNT)
    layout: constexpr = L.BlockedLayout([1, 1], [32 // min(32, wide), min(32, wide)], [S, 1], [1, 0])
    r = L.expand_dims(first + L.arange(0, BT, layout=L.SliceLayout(1, layout)), 1)
    p = L.expand_dims(L.arange(0, wide, layout=L.SliceLayout(0, layout)), 0)
    at = place + r * COUNT + p
    mask = (r < batch) & (p < COUNT)
    parts = L.load(at, mask=mask, other=0.0, cache_modifier=".cg")
    waiting = _missing(parts)
    while waiting != 0:
        parts = L.load(at, mask=mask, other=0.0, cache_modifier=".cg")
        waiting = _missing(parts)
    if LARGEST:
        total = _largest(parts, mask)
    else:
        total = L.sum(parts, 1)
    return L.expand_dims(L.convert_layout(total, L.SliceLayout(1, _tile(BT, U, S))), 1)


@gluon.jit
def write_sum(place, value, wide: constexpr, first, BT: constexpr, U: constexpr, S: constexpr):
    """Columns of a tile, summed over its rows."""
    total = L.sum(value, 0)
    u = first + L.arange(0, U, layout=L.SliceLayout(0, _tile(BT, U, S)))
    L.store(place + u, total, mask=u < wide)
