"""Random cells: from a seed, the readable source of a cell as a user might write it.

    PYTHONPATH=tests python tests/engine/random_cells.py 17        # prints cell 17

A step is a few statements over what it was given and what it has computed so far: products of every spelling, functions
of single numbers, of rows, pieces of rows put together again. Widths are expressions in D, H and K, so that a cell can
be built in any size. Numbers stay tame: what is not known to be small is squashed before it is squared, divided by or
carried on, so that two engines that agree do so to the last digits.
"""

import linecache
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.random_words import (
    ANY,
    BINARY,
    KINKS,
    OF_PAIRS,
    OF_WEIGHTS,
    RARE,
    SMALL,
    SPELLINGS,
    STRUCTURAL,
    TO_ONE,
    UNARY,
)  # fmt: skip

from recurra.cell import Cell

HEAD = """import torch
import torch.nn.functional as F
from torch import nn, sigmoid, tanh

import recurra as rc


class {name}(rc.Cell):
    states = {states}

    def __init__(self, input_size, hidden_size):
        D, H = input_size, hidden_size
        K = {K}
        super().__init__({arguments})
        self.D, self.H, self.K = D, H, K
"""


@dataclass(frozen=True)
class RandomCell:
    seed: int
    source: str
    cell_class: type[Cell]
    draws: bool  # whether it asks for dropout masks
    smooth: bool  # whether it can be differentiated twice without a word about kinks

    @property
    def tolerance(self) -> float:
        """How exact torch is: it holds a factor of these gradients in single precision."""
        return 1e-6 if "F.hards" in self.source or "F.celu" in self.source else 0.0


def random_cell(seed: int) -> RandomCell:
    """The cell of this seed: its source, and its class."""
    writer = _Writer(seed)
    source = writer.write()
    name = f"<random cell {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # tracebacks show its lines
    space: dict = {"__name__": f"random_cell_{seed}"}
    exec(compile(source, name, "exec"), space)
    return RandomCell(seed, source, space[writer.name], bool(writer.masks), not writer.kinks)


@dataclass(frozen=True)
class _Value:
    name: str
    width: str
    small: bool  # of size one or so, whatever went in


@dataclass
class _Writer:
    seed: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"cell {self.seed}")
        self.spells = random.Random(f"spelling {self.seed}")  # apart: the equations do not hang on how they are spelled
        self.name = f"Random{self.seed}"
        self.made: list[str] = []  # lines of __init__
        self.lines: list[str] = []  # lines of step
        self.values: list[_Value] = []
        self.matrices: list[tuple[str, str, str]] = []  # (name, wide, deep)
        self.vectors: list[tuple[str, str]] = []
        self.masks: list[tuple[str, str]] = []
        self.count = 0
        self.rare = self.rng.random() < 0.08
        self.moves = random.Random(f"moves {self.seed}")  # apart: half of the cells have none of what follows from it
        self.structural = self.moves.random() < 0.5
        self.kinks = False

    # ------------------------------------------------------------------------------------------ the whole

    def write(self) -> str:
        rng = self.rng
        self.states = ["h", "c", "n", "s", "m"][: rng.choice([1, 1, 2, 2, 3, 4, 5])]
        self.K = rng.choice(["H + 2", "5", "2 * H", "H // 2 + 1", "3", "D + 1"])
        widths = {s: rng.choice(["H", "H", "H", "K", "1", "3", "D"]) if s != "h" else "H" for s in self.states}
        delays = {s: rng.choice([(1,), (2,), (1, 2), (1, 3), (2, 4)]) for s in self.states if rng.random() < 0.07}
        asks = self._given(widths, delays)
        if rng.random() < 0.8:
            self._affine(self.values[0], "H")
        for _ in range(rng.randint(2, 4 + 2 * len(self.states))):
            self.statement()
            if self.structural and self.moves.random() < 0.4:
                self.moves.choice([self.moved, self.moved, self.moved_pair, self.parts, self.dropped])()
        returned = self._returned(widths)
        if self.structural:
            returned = self._more_states(widths, delays, returned)
        output = None
        if rng.random() < 0.3:
            value = self.pick()
            output = value.width
            returned = [value.name, *returned]
        return self._source(widths, delays, output, asks, returned)

    def _given(self, widths: dict[str, str], delays: dict[str, tuple[int, ...]]) -> list[str]:
        """The arguments of step as values; names of the keyword-only ones."""
        rng = self.rng
        self.values.append(_Value("x", "D", ANY))
        for state in self.states:
            if state in delays:
                names = [f"{state}{k}" for k in delays[state]]
                self.lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {state}")
                self.values += [_Value(name, widths[state], SMALL) for name in names]
            else:
                self.values.append(_Value(state, widths[state], SMALL))
        asks = []
        if rng.random() < 0.12:
            asks.append("t")
            expression = rng.choice(["torch.cos(0.7 * t)", "torch.remainder(t, 3.0) / 3.0", "(t > 1.5).to(x.dtype)"])
            self.lines.append(f"phase = {expression}")
            self.values.append(_Value("phase", "1", SMALL))
        if rng.random() < 0.12:
            name, width, each = "kept", rng.choice(["D", "H"]), rng.choice(["sequence", "step"])
            asks.append(name)
            self.masks.append((name, width))
            self.made.append(f'self.mask("{name}", {width}, 0.4, each="{each}")')
            self.values.append(_Value(name, width, SMALL))
        return asks

    def _returned(self, widths: dict[str, str]) -> list[str]:
        """What each state becomes."""
        found = []
        for width in widths.values():
            kind = self.rng.random()
            if kind < 0.06:
                like = next((v for v in self.values if v.width == width), None)
                found.append(f"torch.full_like({like.name}, 0.2)" if like else self.small(self.of(width)).name)
            elif kind < 0.16:  # one of those that came, itself or another, or one that was returned before
                same = [v.name for v in self.values if v.width == width and v.small]
                found.append(self.rng.choice(same) if same else self.small(self.of(width)).name)
            else:
                value = self.of(width) if self.rng.random() < 0.7 else self.product(width)
                found.append(self.small(value).name)
        return found

    def _more_states(self, widths: dict, delays: dict, returned: list[str]) -> list[str]:
        """A state may become parts of states, as in a shift register; and one may be there that no step reads."""
        if self.moves.random() < 0.3 and widths["h"] == "H" and "h" not in delays and self._untouched("h"):
            returned[0] = self.parts().name
        if self.moves.random() < 0.3:
            width = self.moves.choice(["H", "1", "D"])
            self.states.append("unread")
            widths["unread"] = width
            returned.append(self.small(self.of(width)).name)
        return returned

    def _source(self, widths, delays, output, asks, returned) -> str:
        sizes = {s: w for s, w in widths.items() if w != "H"}
        arguments = ["input_size", "hidden_size"]
        if sizes:
            arguments.append("sizes={" + ", ".join(f'"{s}": {w}' for s, w in sizes.items()) + "}")
        if delays:
            arguments.append("delays={" + ", ".join(f'"{s}": {d}' for s, d in delays.items()) + "}")
        if output not in (None, "H"):
            arguments.append(f"output_size={output}")
        head = HEAD.format(name=self.name, states=tuple(self.states), K=self.K, arguments=", ".join(arguments))
        head += "".join(f"        {line}\n" for line in self.made)
        parameters = ", ".join(["self", "x", *self.states, *(["*", *asks] if asks else [])])
        body = "".join(f"        {line}\n" for line in self.lines)
        return f"{head}\n    def step({parameters}):\n{body}        return {', '.join(returned)}\n"

    # ------------------------------------------------------------------------------------------ values

    def emit(self, expression: str, width: str, small: bool) -> _Value:
        self.kinks |= any(mark in expression for mark in KINKS)
        again = [v for v in self.values if v.width == width and v.name[0] in "vhcnsm" and v.name != "kept"]
        if again and self.rng.random() < 0.1:  # a name bound anew, as people do with h and c
            name = self.rng.choice(again).name
            self.values = [v for v in self.values if v.name != name]
        else:
            self.count += 1
            name = f"v{self.count}"
        self.lines.append(f"{name} = {expression}")
        value = _Value(name, width, small)
        self.values.append(value)
        return value

    def pick(self, width: str | None = None) -> _Value:
        """A value computed so far, rather one that nothing reads yet, rather one of the last."""
        found = [v for v in self.values if width in (None, v.width)]
        if self.rng.random() < 0.5:
            read = set(re.findall(r"\w+", " ".join(line.partition("=")[2] for line in self.lines)))
            found = [v for v in found if v.name not in read] or found
        return found[-1 - min(int(self.rng.expovariate(0.5)), len(found) - 1)]

    def of(self, width: str) -> _Value:
        if any(v.width == width for v in self.values):
            return self.pick(width)
        return self.product(width)

    def small(self, value: _Value) -> _Value:
        if value.small:
            return value
        function = self.rng.choice(["tanh({0})", "tanh({0})", "sigmoid({0})", "torch.clamp({0}, -0.9, 0.8)"])
        return self.emit(function.format(value.name), value.width, SMALL)

    # ------------------------------------------------------------------------------------------ parameters

    def matrix(self, wide: str, deep: str) -> str:
        """A parameter (wide, deep); now and then one that is there already."""
        same = [name for name, w, d in self.matrices if (w, d) == (wide, deep)]
        if same and self.rng.random() < 0.4:
            return self.rng.choice(same)
        name = f"self.W{len(self.matrices)}"
        self.matrices.append((name, wide, deep))
        self.made.append(f"{name} = nn.Parameter(torch.randn({wide}, {deep}) / ({deep}) ** 0.5)")
        return name

    def vector(self, width: str) -> str:
        same = [name for name, w in self.vectors if w == width]
        if same and self.rng.random() < 0.4:
            return self.rng.choice(same)
        name = f"self.p{len(self.vectors)}"
        self.vectors.append((name, width))
        kinds = [
            f"nn.Parameter(0.5 * torch.randn({width}))",
            f"nn.Parameter(0.5 * torch.randn({width}))",
            f"self.vector({width}, fill=0.3)",
            "nn.Parameter(torch.tensor(0.4))",
            "nn.Parameter(torch.randn(1))",
            f"nn.Parameter(0.5 * torch.randn(1, {width}))",
        ]
        self.made.append(f"{name} = {self.rng.choice(kinds)}")
        return name

    def own(self, prefix: str, made: str) -> str:
        self.count += 1
        name = f"self.{prefix}{self.count}"
        self.made.append(f"{name} = {made}")
        return name

    # ------------------------------------------------------------------------------------------ statements

    def statement(self) -> None:
        kinds: list[tuple[float, Callable[[], object]]] = [
            (6, lambda: self.product(self.rng.choice(["H", "H", "H", "K", "1", "3", "2 * H", "D"]))),
            (6, self.unary),
            (6, self.binary),
            (2, self.to_one),
            (2, self.pieces),
            (2, self.joined),
            (1.5, self.with_vector),
            (0.7, self.in_place),
            (0.4, self.dead),
            (2.0 if self.rare else 0.0, self.uncommon),
        ]
        weights, functions = zip(*kinds, strict=True)
        self.rng.choices(functions, weights)[0]()

    def unary(self) -> _Value:
        template, small, wants = self.rng.choice(UNARY)
        value = self.pick()
        value = self.small(value) if wants else value
        if "var(" in template and value.width in ("1", "D"):  # of one number there is none
            value = self.of("H")
        return self.emit(template.format(value.name), value.width, small)

    def binary(self) -> _Value:
        template, small = self.rng.choice(BINARY)
        first = self.pick()
        others = [v for v in self.values if v.width == first.width or v.width == "1"]
        second = self.rng.choice(others)
        if "addc" in template or "lerp" in template or "clamp" in template:
            second = self.pick(first.width)
        first, second = (self.small(first), self.small(second)) if "**" in template else (first, second)
        if self.rng.random() < 0.3 and "lerp" not in template and second.width == first.width:
            first, second = second, first
        return self.emit(template.format(first.name, second.name), first.width, small)

    def with_vector(self) -> _Value:
        value = self.pick()
        vector = self.vector(value.width)
        template = self.rng.choice(
            ["{0} * {1}", "{0} + {1}", "{1} - {0}", "sigmoid({1}) * {0}", "{0} / (1 + {1} ** 2)", "({1} + 1) * {0}",
             "torch.where({1} > 0, {0}, -{0})", "F.softplus({1}) * {0} + {1}", "torch.maximum({0}, {1})"]
        )  # fmt: skip
        return self.emit(template.format(value.name, vector), value.width, ANY)

    def to_one(self) -> _Value:
        template = self.rng.choice(TO_ONE)
        value = self.small(self.pick())
        if "var(" in template and value.width in ("1", "D"):  # of one number there is none
            value = self.of("H")
        return self.emit(template.format(value.name), "1", ANY)

    def uncommon(self) -> _Value:
        value = self.small(self.pick())
        if self.rng.random() < 0.3:
            return self._einsum(value, self.rng.choice(["H", "K"]))
        template = self.rng.choice(RARE)
        return self.emit(template.format(value.name), value.width, ANY)

    def dead(self) -> None:
        value = self.pick()
        self.count += 1
        self.lines.append(f"unused{self.count} = torch.exp(tanh({value.name})) @ {self.matrix(value.width, 'H')}")

    def in_place(self) -> _Value:
        first = self.pick()
        value = self.emit(f"0.7 * {first.name} + 0.1", first.width, ANY)
        other = self.pick(first.width)
        line = self.rng.choice(
            ["{0}.mul_(0.5)", "{0} += 0.3", "{0} *= 0.8", "{0}.add_({1}, alpha=0.5)", "{0} -= {1} * 0.2",
             "{0}.mul_(0.5).add_(0.1)", "{0} = {0}.neg_()", "{0}.clamp_(-0.5, 0.6)", "{0}[:, :1] = 0.2",
             "{0}[:, 0] += 0.1", "{0}[:, -1:].mul_(0.3)"]
        )  # fmt: skip
        self.kinks |= "clamp" in line
        self.lines.append(line.format(value.name, other.name if other is not value else "0.25"))
        return value

    def pieces(self) -> _Value:
        """One row cut in several, which are values of their own."""
        rng = self.rng
        kind = rng.choice(["chunk", "split", "slices", "one", "glu", "roll"])
        self.count += 1
        a, b = f"v{self.count}a", f"v{self.count}b"
        if kind in ("chunk", "glu"):
            whole = self.of("2 * H") if rng.random() < 0.7 else self.joined_of("H", "H")
            if kind == "glu":
                return self.emit(f"F.glu({whole.name}, -1)", "H", ANY)
            self.lines.append(f"{a}, {b} = {whole.name}.chunk(2, {rng.choice(['-1', '1', 'dim=-1'])})")
            self.values += [_Value(a, "H", whole.small), _Value(b, "H", whole.small)]
            return self.values[-1]
        whole = self.of("H")
        if kind == "split":
            self.lines.append(f"{a}, {b} = {whole.name}.split([2, self.H - 2], -1)")
            self.values += [_Value(a, "2", whole.small), _Value(b, "H - 2", whole.small)]
            return self.values[-1]
        if kind == "slices":
            self.lines.append(f"{a}, {b} = {whole.name}[:, :3], {whole.name}[:, {rng.choice(['2:', '-self.H + 2:'])}]")
            self.values += [_Value(a, "3", whole.small), _Value(b, "H - 2", whole.small)]
            return self.values[-1]
        if kind == "roll":
            return self.emit(f"torch.roll({whole.name}, {rng.choice([1, -1, 2])}, -1)", "H", whole.small)
        return self.emit(f"{whole.name}.narrow(1, 1, 3)", "3", whole.small)

    def joined(self) -> _Value:
        rng = self.rng
        kind = rng.choice(["cat", "cat", "expand", "repeat", "back", "view"])
        if kind == "cat":
            return self.joined_of("H", "H")
        if kind in ("expand", "repeat"):
            one = next((v for v in reversed(self.values) if v.width == "1"), None) or self.to_one()
            like = self.of("H")
            spelling = rng.choice(["{0}.expand(-1, self.H)", "{0}.expand_as({1})", "{0}.repeat(1, self.H)",
                                   "{0}.expand(x.shape[0], self.H)", "{0} * torch.ones_like({1})",
                                   "{0} + x.new_zeros(x.shape[0], self.H)"])  # fmt: skip
            return self.emit(spelling.format(one.name, like.name), "H", one.small)
        whole = self.of("H")
        if kind == "back":
            return self.emit(f"torch.cat([{whole.name}[:, 2:], tanh({whole.name}[:, :2])], -1)", "H", whole.small)
        spelling = rng.choice(["{0}.view(-1, self.H)", "{0}.reshape(x.shape[0], -1)", "{0}[:x.shape[0]]",
                               "{0}.contiguous()", "{0}.flatten(1)", "{0}[:, :]"])  # fmt: skip
        return self.emit(spelling.format(whole.name), "H", whole.small)

    def joined_of(self, *widths: str) -> _Value:
        parts = [self.of(width) for width in widths]
        names = ", ".join(part.name for part in parts)
        return self.emit(f"torch.cat([{names}], {self.rng.choice(['-1', '1', 'dim=1'])})", "2 * H", ANY)

    # ------------------------------------------------------------------------------------------ structure

    def moved(self) -> _Value:
        """Numbers of a row in another order, added up, or dropped."""
        value, template = self.small(self.pick()), self.moves.choice(STRUCTURAL)
        return self.emit(template.format(value.name), value.width, ANY)

    def moved_pair(self) -> _Value:
        template, width = self.moves.choice(OF_PAIRS)
        return self.emit(template.format(self.small(self.of("2 * H")).name), width, ANY)

    def dropped(self) -> _Value:
        """Through a module."""
        value = self.pick()
        kind = self.moves.choice(["nn.Dropout(0.3)", "nn.Dropout(0.5)", "nn.AlphaDropout(0.2)", "nn.Dropout(1.0)"])
        return self.emit(f"{self.own('drop', kind)}({value.name})", value.width, ANY)

    def parts(self) -> _Value:
        """Parts of a state, or of what is as wide, put together."""
        whole, moves = self.small(self.of("H")), self.moves
        given = "h" if "h" in {v.name for v in self.values if v.width == "H"} and self._untouched("h") else whole.name
        template = moves.choice(
            ["torch.cat([{0}[:, 1:], {0}[:, :1]], -1)", "torch.cat([{0}[:, 2:], {1}[:, :2]], 1)",
             "torch.cat([{1}[:, :1], {0}[:, :-1]], 1)", "torch.cat([{0}[:, :2], {1}[:, 2:3], {0}[:, 3:]], -1)",
             "torch.cat([{0}[:, -2:], 0.5 * {0}[:, :-2]], -1)", "torch.cat([{0}[:, :1]] * 2 + [{1}[:, 2:]], 1)",
             "torch.stack(({0} + {1}).unbind(1)[::-1], 1)"]
        )  # fmt: skip
        return self.emit(template.format(given, whole.name), "H", ANY)

    # ------------------------------------------------------------------------------------------ products

    def product(self, wide: str) -> _Value:
        value = self.pick()
        if not value.small and value.name != "x":
            value = self.small(value)
        kinds: list[Callable[[_Value, str], _Value]] = [
            self._affine, self._affine, self._affine, self._linear, self._at, self._addmm, self._module,
            self._of_weights, self._low_rank, self._concatenated, self._chained, self._sliced, self._vector_product,
        ]  # fmt: skip
        result = self.rng.choice(kinds)(value, wide)
        return result if result.width == wide else self._linear(self.small(result), wide)

    def _affine(self, value: _Value, wide: str) -> _Value:
        operands = {v.name: v for v in (value, self.pick(), self.rng.choice(self.values[: 1 + len(self.states)]))}
        operands = dict(list(operands.items())[: self.rng.randint(1, 3)])
        known = {"x", *self.states}
        plain = [name for name, v in operands.items() if name in known and self._untouched(name)]
        if len(plain) == len(operands):
            given = ", ".join(f'"{name}"' for name in operands)
        else:  # by width
            operands = {value.name: value}
            given = value.width
        bias = self.rng.choice(["", "", ", bias=False"])
        name = self.own("a", f"self.affine({given}, size={wide}{bias})")
        return self.emit(f"{name}({', '.join(v.name for v in operands.values())})", wide, ANY)

    def _untouched(self, name: str) -> bool:
        return not any(line.startswith((f"{name} = ", f"{name}.", f"{name} +")) for line in self.lines)

    def _linear(self, value: _Value, wide: str) -> _Value:
        bias = self.rng.choice(["", f", {self.own('b', f'nn.Parameter(0.3 * torch.randn({wide}))')}"])
        matrix = self.matrix(wide, value.width)
        plain = "F.linear({0}, {1}" + bias + ")"
        return self.emit((plain if bias else self._spelled(plain)).format(value.name, matrix), wide, ANY)

    def _spelled(self, plain: str) -> str:
        return self.spells.choice(SPELLINGS) if self.spells.random() < 0.4 else plain

    def _at(self, value: _Value, wide: str) -> _Value:
        spelling = self.rng.choice(["{0} @ {1}.t()", "{0} @ {1}.T", "torch.mm({0}, {1}.t())",
                                    "torch.matmul({0}, {1}.transpose(0, 1))", "{0}.matmul({1}.mT)"])  # fmt: skip
        if self.rng.random() < 0.5:
            matrix = self.matrix(wide, value.width)
            return self.emit(self._spelled(spelling).format(value.name, matrix), wide, ANY)
        return self.emit(f"{value.name} @ {self.matrix(value.width, wide)}", wide, ANY)

    def _addmm(self, value: _Value, wide: str) -> _Value:
        same = [v.name for v in self.values if v.width == wide]
        first = self.rng.choice([self.own("b", f"nn.Parameter(0.3 * torch.randn({wide}))"), *same[-1:]])
        factors = self.rng.choice(["", ", alpha=0.5", ", beta=0.5", ", beta=2, alpha=0.3"])
        turned = self.rng.random() < 0.5
        matrix = f"{self.matrix(wide, value.width)}.t()" if turned else self.matrix(value.width, wide)
        return self.emit(f"torch.addmm({first}, {value.name}, {matrix}{factors})", wide, ANY)

    def _module(self, value: _Value, wide: str) -> _Value:
        kind = self.rng.choice(["linear", "linear", "sequential", "norm"])
        bias = self.rng.choice(["", ", bias=False"])
        if kind == "norm" and value.width != "1":
            name = self.own("norm", f"nn.LayerNorm({value.width})")
            return self.emit(f"{name}({value.name})", value.width, ANY)
        if kind == "sequential":
            name = self.own("net", f"nn.Sequential(nn.Linear({value.width}, 6), nn.Tanh(), nn.Linear(6, {wide}))")
            return self.emit(f"{name}({value.name})", wide, ANY)
        name = self.own("lin", f"nn.Linear({value.width}, {wide}{bias})")
        return self.emit(f"{name}({value.name})", wide, ANY)

    def _of_weights(self, value: _Value, wide: str) -> _Value:
        """A square matrix with something done to it first."""
        weight = self.rng.choice(OF_WEIGHTS).format(self.matrix(value.width, value.width))
        if self.rng.random() < 0.25:
            mask = self.own("keep", "None")
            self.made.pop()
            self.made.append(f'self.register_buffer("{mask[5:]}", torch.rand({value.width}, {value.width}) > 0.3)')
            weight = f"({weight} * {mask})"
        spelling = self.rng.choice(["{0} @ {1}", "F.linear({0}, {1})"])
        return self.emit(spelling.format(value.name, weight), value.width, ANY)

    def _low_rank(self, value: _Value, wide: str) -> _Value:
        low, high = self.matrix("2", value.width), self.matrix(wide, "2")
        spelling = self.rng.choice(["F.linear(F.linear({0}, {1}), {2})", "F.linear({0}, {2} @ {1})"])
        return self.emit(spelling.format(value.name, low, high), wide, ANY)

    def _concatenated(self, value: _Value, wide: str) -> _Value:
        other = self.small(self.pick())
        matrix = self.own("U", f"nn.Parameter(0.3 * torch.randn({wide}, {value.width} + {other.width}))")
        return self.emit(f"F.linear(torch.cat([{value.name}, {other.name}], -1), {matrix})", wide, ANY)

    def _chained(self, value: _Value, wide: str) -> _Value:
        inner, outer = self.matrix("H", value.width), self.matrix(wide, "H")
        between = self.rng.choice(["tanh({0})", "{0}", "F.relu({0})", "F.layer_norm({0}, (self.H,))"])
        self.kinks |= "relu" in between
        inner = between.format(f"F.linear({value.name}, {inner})")
        return self.emit(f"F.linear({inner}, {outer})", wide, ANY)

    def _sliced(self, value: _Value, wide: str) -> _Value:
        """Some rows or columns of a weight with more of them."""
        big = self.own("big", f"nn.Parameter(0.3 * torch.randn(2 * ({wide}), {value.width}))")
        spelling = self.rng.choice(["F.linear({0}, {1}[: {1}.shape[0] // 2])", "F.linear({0}, {1}.chunk(2)[1])",
                                    "F.linear({0}, {1}).chunk(2, -1)[0]", "F.linear({0}, {1}[::2])",
                                    "F.linear({0}, {1})[:, {1}.shape[0] // 2 :]"])  # fmt: skip
        return self.emit(spelling.format(value.name, big), wide, ANY)

    def _vector_product(self, value: _Value, wide: str) -> _Value:
        vector = self.own("q", f"nn.Parameter(0.5 * torch.randn({value.width}))")
        spelling = self.rng.choice(["({0} @ {1})[:, None]", "({0} * {1}).sum(-1, keepdim=True)",
                                    "torch.mv({0}, {1}).unsqueeze(-1)"])  # fmt: skip
        one = spelling.format(value.name, vector)
        if wide == "1" or self.rng.random() < 0.4:
            return self.emit(one, "1", ANY)
        gain = self.own("r", f"nn.Parameter(0.5 * torch.randn({wide}))")
        return self.emit(f"{one} * {gain}", wide, ANY)

    def _einsum(self, value: _Value, wide: str) -> _Value:
        spellings = [
            ("torch.einsum('bi,ji->bj', {0}, {1})", False),
            ("torch.einsum('bi,ij->bj', {0}, {1})", True),
            ("({1} @ {0}.t()).t()", False),
            ("torch.bmm({0}[:, None], {1}.expand(x.shape[0], -1, -1))[:, 0]", True),
        ]
        spelling = self.rng.choice(spellings)
        matrix = self.matrix(*((value.width, wide) if spelling[1] else (wide, value.width)))
        return self.emit(spelling[0].format(value.name, matrix), wide, ANY)


if __name__ == "__main__":
    for number in sys.argv[1:]:
        print(random_cell(int(number)).source)
