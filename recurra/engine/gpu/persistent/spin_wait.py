"""How a warp waits for what it multiplies, in the machine's own language (PTX), since tiles cannot say it.

Each thread asks for the sixteen bytes that the tensor cores want of it, and again for those that have not come, until
its whole warp has all of them: they are in their registers the moment they arrive. No other warp is waited for.

Who asks too soon asks twice, and is in the way of others' answers. So a warp pauses before it asks for the first time;
or, where a step moves so much that every question asked twice is felt, waits for heralds: sixteen bytes of each
program, of the row that is written last.
"""

from collections.abc import Sequence

WORDS = 4  # of 32 bits in sixteen bytes
PAUSE = 350  # cycles; what the others write takes longer. On an H200, 250 to 450 are about as good


def listing(strides: Sequence[int], rows: int, bits: int, first: str) -> str:
    """The instructions. Each spot is an address, of which a thread wants `rows` rows, so many bytes apart; zero for
    what nobody will send. Then comes how many of the rows there are. What comes `first`: a "pause", a "herald", whose
    address is the last argument, or nothing."""
    spots = len(strides)
    address = spots * rows * WORDS
    there = address + spots
    lines = [f".reg .b32 rows<{spots}>, most;", ".reg .b16 low, high;", ".reg .pred p;"]
    lines += _herald(there + 1, bits) if first == "herald" else _pause() if first == "pause" else []
    lines += [f"mov.b32 ${word}, 0;" for word in range(address)]
    for spot in range(spots):
        lines += [f"setp.ne.s64 p, ${address + spot}, 0;", f"selp.b32 rows{spot}, ${there}, 0, p;"]
    lines.append("again:")
    for spot, stride in enumerate(strides):
        for row in range(rows):
            into = ", ".join(f"${(spot * rows + row) * WORDS + word}" for word in range(WORDS))
            lines.append(f"setp.gt.s32 p, rows{spot}, {row};")
            lines.append(f"@p ld.relaxed.gpu.global.v4.b32 {{{into}}}, [${address + spot}+{row * stride}];")
    lines += [*_any_missing([f"${word}" for word in range(address)], bits), *_repeat("again")]
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


def _herald(address: int, bits: int) -> list[str]:
    words = [f"h{word}" for word in range(WORDS)]
    return [
        f".reg .b32 {', '.join(words)};",
        ".reg .pred sent;",
        f"setp.ne.s64 sent, ${address}, 0;",
        *(f"mov.b32 {word}, 0;" for word in words),
        "herald:",
        f"@sent ld.relaxed.gpu.global.v4.b32 {{{', '.join(words)}}}, [${address}];",
        *_any_missing(words, bits),
        *_repeat("herald"),
    ]


def _repeat(label: str) -> list[str]:
    """As long as a thread of the warp misses something."""
    return ["vote.sync.any.pred p, p, 0xffffffff;", f"@p bra.uni {label};"]


def _any_missing(words: Sequence[str], bits: int) -> list[str]:
    """p: whether a number among the words has all its bits set, and so is the largest there is."""
    kind = "u16x2" if bits == 16 else "u32"
    lines = [f"mov.b32 most, {words[0]};", *(f"max.{kind} most, most, {word};" for word in words[1:])]
    if bits == 16:
        return [*lines, "mov.b32 {low, high}, most;", "max.u16 low, low, high;", "setp.eq.u16 p, low, 0xffff;"]
    return [*lines, "setp.eq.u32 p, most, 0xffffffff;"]


def constraints(spots: int, rows: int, first: str) -> str:
    """Every result is written before the last address was read."""
    return ",".join(["=&r"] * (spots * rows * WORDS) + ["l"] * spots + ["r"] + ["l"] * (first == "herald"))


def side_by_side(names: Sequence[str]) -> str:
    """Tiles as one tile with further axes, of length two: the bits of a tile's number, the highest first."""
    while len(names) > 1:
        half = len(names) // 2
        names = [f"L.join({names[i]}, {names[i + half]})" for i in range(half)]
    return names[0]
