"""Equations are LaTeX derived from the step: whole, readable, and the same whoever asks."""

import re

import pytest
import torch
from cases import CASES, Case, every_case, sampled_name
from torch import Tensor, tanh

import recurra as rc
from recurra.affine import Affine
from recurra.cell import TIME

GREEK = ("alpha", "beta", "gamma", "zeta", "eta", "theta", "omega", "lambda", "mu", "nu", "rho", "tau", "phi")


def sides(text: str) -> list[tuple[str, str]]:
    """`(left, right)` of every equation in the block."""
    body = re.fullmatch(r"\\begin\{aligned\}\n(.*)\n\\end\{aligned\}", text, re.DOTALL)
    assert body, text
    return [(left, right) for left, right in (line.split(" &= ") for line in body[1].split(" \\\\\n"))]


def spelled(*parts: str) -> str:
    """The first part with the others below it; Greek letters by name, words upright."""
    base, *below = (rf"\{p}" if p in GREEK else rf"\mathrm{{{p}}}" if len(p) > 1 and p.isalpha() else p for p in parts)
    return base + (f"_{{{','.join(below)}}}" if below else "")


def spellings(cell: rc.Cell, name: str) -> set[str]:
    """How the weight `i.W_h` may be written: with its gate below, bare if there is one gate, or as the gate itself."""
    path, _, leaf = name.rpartition(".")
    gate = path.rpartition(".")[2]
    base, *below = leaf.split("_")
    if not path:
        return {spelled(base, *below)}
    alone = sum(isinstance(child, Affine) for child in cell.children()) == 1 and "." not in path
    lone = {spelled(*gate.split("_"))} if gate.isupper() and len(getattr(cell, gate).operands) == 1 else set()
    return {spelled(base, *gate.split("_"), *below)} | lone | ({spelled(base, *below)} if alone else set())


@every_case
def test_the_block_is_well_formed(case: Case):
    text = case.cell().equations()
    bare = text.replace(r"\{", "").replace(r"\}", "")
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"\\left[\(\[|]", text)) == len(re.findall(r"\\right[\)\]|]", text))
    assert text.count(r"\left") == text.count(r"\right")
    assert not re.search(r"_\{[^{}]*\}_|_\w_", text), "two subscripts on one symbol"
    assert not re.search(r"\+ -|- -|--|\+\+", text)
    assert all(left.strip() and right.strip() for left, right in sides(text))


@every_case
def test_every_state_stands_on_the_left_once_and_no_symbol_twice(case: Case):
    cell = case.cell()
    lefts = [left for left, _ in sides(cell.equations())]
    for spec in cell.carried:
        if spec.name == TIME:
            continue
        assert lefts.count(spelled(spec.name) + "_{t}") == 1
    assert len(set(lefts)) == len(lefts)


@every_case
def test_every_symbol_is_defined_before_it_is_used(case: Case):
    seen: set[str] = set()
    lines = sides(case.cell().equations())
    defined = {left for left, _ in lines}
    for left, right in lines:
        for other in defined - seen:
            assert not re.search(rf"(?<![\w}}]){re.escape(other)}(?![\w_'])", right), f"{other} used before its line"
        seen.add(left)


@every_case
def test_every_weight_appears(case: Case):
    cell = case.cell()
    text = cell.equations()
    for name in set(cell.weights()) - {"h_0", "permutation"}:  # a start is no part of a step; the permutation is Π
        patterns = (rf"(?<![A-Za-z\\]){re.escape(symbol)}(?![A-Za-z_])" for symbol in spellings(cell, name))
        assert any(re.search(pattern, text) for pattern in patterns), f"{name} in {text}"


def test_exact_equations_of_the_plain_network():
    expected = r"""\begin{aligned}
h_{t} &= \tanh\left(W\,h_{t-1} + U\,x_{t} + b\right)
\end{aligned}"""
    assert rc.registry()["rnn"].equations() == expected


def test_exact_equations_of_gru():
    expected = r"""\begin{aligned}
r_{t} &= \sigma\left(W_{r}\,h_{t-1} + U_{r}\,x_{t} + b_{r}\right) \\
z_{t} &= \sigma\left(W_{z}\,h_{t-1} + U_{z}\,x_{t} + b_{z}\right) \\
g_{t} &= \tanh\left(W_{c}\,\left(r_{t} \odot h_{t-1}\right) + U_{c}\,x_{t} + b_{c}\right) \\
h_{t} &= \left(1 - z_{t}\right) \odot h_{t-1} + z_{t} \odot g_{t}
\end{aligned}"""
    assert rc.registry()["gru"].equations() == expected


def test_exact_equations_of_vanilla_lstm():
    expected = r"""\begin{aligned}
i_{t} &= \sigma\left(W_{i}\,h_{t-1} + U_{i}\,x_{t} + p_{i} \odot c_{t-1} + b_{i}\right) \\
f_{t} &= \sigma\left(W_{f}\,h_{t-1} + U_{f}\,x_{t} + p_{f} \odot c_{t-1} + b_{f}\right) \\
g_{t} &= \tanh\left(W_{g}\,h_{t-1} + U_{g}\,x_{t} + b_{g}\right) \\
c_{t} &= f_{t} \odot c_{t-1} + i_{t} \odot g_{t} \\
o_{t} &= \sigma\left(W_{o}\,h_{t-1} + U_{o}\,x_{t} + p_{o} \odot c_{t} + b_{o}\right) \\
h_{t} &= o_{t} \odot \tanh\left(c_{t}\right)
\end{aligned}"""
    assert rc.registry()["vanilla_lstm"].equations() == expected


@sampled_name
def test_class_and_instance_say_the_same(case: Case):
    cell_class = rc.registry()[case.name]
    assert cell_class.equations() == cell_class(3, 4).equations() == case.cell().equations()


def test_options_change_the_equations_of_an_instance():
    assert r"\mathrm{relu}" in Case("rnn", {"nonlinearity": "relu"}).cell().equations()
    assert "h_{t-4}" in Case("delay_rnn", {"delays": (1, 4)}).cell().equations()
    assert "W_{m}" in Case("gru", {"reset_after": True}).cell().equations()


SOURCE = '''
class Typed(Cell):
    """A cell typed into a prompt."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.u, self.c = self.affine("x", "h"), self.affine("x", "h")
        self.tau = self.vector(fill=2.0)

    def step(self, x, h):
        update = sigmoid(self.u(x, h) / self.tau)
        new = tanh(self.c(x, update * h))
        return update * h + (1 - update) * new
'''


def test_a_cell_without_source_text_has_equations():
    typed: dict = {"Cell": rc.Cell, "sigmoid": torch.sigmoid, "tanh": tanh, "__name__": "prompt"}
    exec(compile(SOURCE, "<prompt>", "exec"), typed)
    expected = r"""\begin{aligned}
\mathrm{update}_{t} &= \sigma\left(\frac{W_{u}\,h_{t-1} + U_{u}\,x_{t} + b_{u}}{\tau}\right) \\
\mathrm{new}_{t} &= \tanh\left(W_{c}\,\left(\mathrm{update}_{t} \odot h_{t-1}\right) + U_{c}\,x_{t} + b_{c}\right) \\
h_{t} &= \mathrm{update}_{t} \odot h_{t-1} + \left(1 - \mathrm{update}_{t}\right) \odot \mathrm{new}_{t}
\end{aligned}"""
    assert typed["Typed"].equations() == expected == typed["Typed"](3, 4).equations()


def test_named_intermediates_keep_their_names_and_rebound_states_do_not_collide():
    class Twice(rc.Cell):
        """Binds its state twice and its output apart."""

        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.a = self.affine("x", "h")

        def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            pre_net = self.a(x, h)
            h = tanh(pre_net)
            return 2 * h, h

    lefts = [left for left, _ in sides(Twice.equations())]
    assert lefts == [r"\mathrm{pre}_{\mathrm{net},t}", "h_{t}", "y_{t}"]


@pytest.mark.parametrize("case", [case for case in CASES if case.name == "unitary_rnn"], ids=str)
def test_the_transform_and_its_inverse_are_told_apart(case: Case):
    lines = dict(sides(case.cell().equations()))
    assert lines["z_{1,t}"].startswith(r"\mathcal{F}\,")
    assert lines["z_{3,t}"].startswith(r"\mathcal{F}^{-1}\,")


def test_products_of_columns_print_as_products():
    class Columns(rc.Cell):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.U = torch.nn.Parameter(torch.randn(hidden_size, input_size))
            self.W = torch.nn.Parameter(torch.randn(hidden_size, hidden_size))

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            column = self.U @ x.T
            turned = h @ self.W.T
            return tanh(column.T + turned + (self.W @ h[..., None])[..., 0])

    lines = dict(sides(Columns.equations()))
    assert lines[r"\mathrm{column}_{t}"] == r"U\,x_{t}^\top"
    assert lines[r"\mathrm{turned}_{t}"] == r"W\,h_{t-1}"
    assert r"W\,h_{t-1}" in lines["h_{t}"]
