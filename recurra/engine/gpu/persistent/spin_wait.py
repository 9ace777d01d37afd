"""Inline PTX with which a warp polls memory until its operands are complete; Gluon has no such instruction.

Each thread loads the sixteen bytes that the tensor cores take from it, and loads them again until no element of its
warp is all ones. The values are then in the right registers. Other warps are not waited for.

A load that comes too early is repeated and delays the stores it waits for. So a warp first pauses for a fixed number of
cycles. Where a step moves much data it first polls a probe instead: sixteen bytes of each program in the row stored
last.
"""

from collections.abc import Sequence

WORDS = 4  # 32-bit words in sixteen bytes
PAUSE = 350  # cycles, less than a store takes to arrive; on an H200, 250 to 450 are equally fast


def instructions(strides: Sequence[int], rows: int, bits: int, first: str) -> str:
    """The PTX block. Operands: per entry of `strides` an address (zero: load nothing), from which a thread loads `rows`
    rows that many bytes apart; then the number of valid rows. `first` is "pause", "probe" (its address is the last
    operand) or empty."""
    count = len(strides)
    address = count * rows * WORDS
    valid = address + count
    lines = [f".reg .b32 rows<{count}>, most;", ".reg .b16 low, high;", ".reg .pred p;"]
    lines += _probe(valid + 1, bits) if first == "probe" else _pause() if first == "pause" else []
    lines += [f"mov.b32 ${word}, 0;" for word in range(address)]
    for spot in range(count):
        lines += [f"setp.ne.s64 p, ${address + spot}, 0;", f"selp.b32 rows{spot}, ${valid}, 0, p;"]
    lines.append("again:")
    for spot, stride in enumerate(strides):
        for row in range(rows):
            into = ", ".join(f"${(spot * rows + row) * WORDS + word}" for word in range(WORDS))
            lines.append(f"setp.gt.s32 p, rows{spot}, {row};")
            lines.append(f"@p ld.relaxed.gpu.global.v4.b32 {{{into}}}, [${address + spot}+{row * stride}];")
    lines += [*_any_unset([f"${word}" for word in range(address)], bits), *_repeat("again")]
    return " ".join(["{", *lines, "}"])


def _pause() -> list[str]:
    return [
        ".reg .u32 began, passed;",
        "mov.u32 began, %clock;",
        "pause:",
        "mov.u32 passed, %clock;",
        "sub.u32 passed, passed, began;",
        f"setp.lt.u32 p, passed, {PAUSE};",
        "@p bra pause;",
    ]


def _probe(address: int, bits: int) -> list[str]:
    words = [f"h{word}" for word in range(WORDS)]
    return [
        f".reg .b32 {', '.join(words)};",
        ".reg .pred valid;",
        f"setp.ne.s64 valid, ${address}, 0;",
        *(f"mov.b32 {word}, 0;" for word in words),
        "probe:",
        f"@valid ld.relaxed.gpu.global.v4.b32 {{{', '.join(words)}}}, [${address}];",
        *_any_unset(words, bits),
        *_repeat("probe"),
    ]


def _repeat(label: str) -> list[str]:
    """Branch back while any thread of the warp has an unset element."""
    return ["vote.sync.any.pred p, p, 0xffffffff;", f"@p bra.uni {label};"]


def _any_unset(words: Sequence[str], bits: int) -> list[str]:
    """Set p if an element of the words has all bits set, i.e. is the largest unsigned number."""
    kind = "u16x2" if bits == 16 else "u32"
    lines = [f"mov.b32 most, {words[0]};", *(f"max.{kind} most, most, {word};" for word in words[1:])]
    if bits == 16:
        return [*lines, "mov.b32 {low, high}, most;", "max.u16 low, low, high;", "setp.eq.u16 p, low, 0xffff;"]
    return [*lines, "setp.eq.u32 p, most, 0xffffffff;"]


def constraints(spots: int, rows: int, first: str) -> str:
    """Constraints of the operands: results are early-clobber, written before the last address is read."""
    return ",".join(["=&r"] * (spots * rows * WORDS) + ["l"] * spots + ["r"] + ["l"] * (first == "probe"))


def publish_instructions(count: int) -> str:
    """PTX that stores numbers of a program side by side. Operands: a result without meaning, the address (zero: store
    nothing), and the numbers."""
    lines = [".reg .pred p;", "setp.ne.s64 p, $1, 0;"]
    for first in range(0, count, WORDS):
        numbers = [f"${2 + word}" for word in range(first, min(count, first + WORDS))]
        kind, given = _vector(numbers)
        lines.append(f"@p st.relaxed.gpu.global{kind}.b32 [$1+{4 * first}], {given};")
    return " ".join(["{", *lines, "mov.b32 $0, 0;", "}"])


def publish_constraints(count: int) -> str:
    return ",".join(["=r", "l", *["r"] * count])


def wait_instructions(count: int, addresses: int) -> str:
    """PTX that loads `count` numbers from each of some addresses until none has all bits set. Operands: the first
    numbers of all addresses, the second numbers and so on, then the addresses (zero: load nothing)."""
    first = count * addresses
    words = [[f"${number * addresses + place}" for number in range(count)] for place in range(addresses)]
    lines = [f".reg .pred p, has<{addresses}>;", ".reg .b32 most;"]
    lines += [f"setp.ne.s64 has{place}, ${first + place}, 0;" for place in range(addresses)]
    lines += _pause()
    lines += [f"mov.b32 ${word}, 0;" for word in range(first)]
    lines.append("again:")
    for place in range(addresses):
        for start in range(0, count, WORDS):
            kind, into = _vector(words[place][start : start + WORDS])
            lines.append(f"@has{place} ld.relaxed.gpu.global{kind}.b32 {into}, [${first + place}+{4 * start}];")
    lines += [*_any_unset([word for group in words for word in group], 32), *_repeat("again")]
    return " ".join(["{", *lines, "}"])


def wait_constraints(count: int, addresses: int) -> str:
    return ",".join(["=&r"] * (count * addresses) + ["l"] * addresses)


def _vector(words: Sequence[str]) -> tuple[str, str]:
    """The suffix of an instruction that moves some words, and its operand."""
    return (f".v{len(words)}", f"{{{', '.join(words)}}}") if len(words) > 1 else ("", words[0])


def join_tiles(names: Sequence[str]) -> str:
    """Join tiles into one with further axes of length two: the bits of a tile's number, the highest first."""
    while len(names) > 1:
        half = len(names) // 2
        names = [f"L.join({names[i]}, {names[i + half]})" for i in range(half)]
    return names[0]
