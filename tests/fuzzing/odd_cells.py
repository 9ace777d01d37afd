"""Random cells whose steps do what a graph of torch operations cannot hold, or can only with care.

A step is a product and a few of the features below: gradients of its own (autograd Functions, `no_grad`, hooks), draws,
effects, branches, numbers read out of tensors, containers. Each feature names what a program may change between two
calls. `odd_cell(seed)` writes the source, so that a failure can be read and run again.
"""

import linecache
import random
from dataclasses import dataclass
from typing import Any, NamedTuple

from recurra.cell import Cell

HEAD = """import dataclasses
import numpy
import torch
import torch.nn.functional as F
from torch import nn, sigmoid, tanh

import recurra as rc

GLOBAL = {"g": 0.7, "deep": [1.0, {"er": 0.5}]}
COUNTS = {"steps": 0}
FACTOR = 0.9


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        return torch.sign(v)

    @staticmethod
    def backward(ctx, g):
        return g


class Surrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, slope):
        ctx.save_for_backward(v)
        ctx.slope = slope
        return (v > 0.1).to(v.dtype)

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return g / (1 + ctx.slope * v.abs()) ** 2, None


class Swapped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b, a + b

    @staticmethod
    def backward(ctx, g, k):
        a, b = ctx.saved_tensors
        return g * a.sin() + k, g * b.cos() - 2 * k


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v, weight):
        ctx.save_for_backward(v)
        return torch.round(4 * v) / 4 * weight

    @staticmethod
    def backward(ctx, g):
        (v,) = ctx.saved_tensors
        return (g * (v.abs() < 1) if ctx.needs_input_grad[0] else None), g.sum(0)


@dataclasses.dataclass
class Settings:
    scale: float = 0.8
    parts: tuple = (0.5, 0.25)


def make_scaled():
    rate = 0.6

    def scaled(v):
        return rate * v

    def change(value):
        nonlocal rate
        rate = value

    return scaled, change


scaled, change_rate = make_scaled()


class Helper:
    def __init__(self):
        self.gain = 1.2
        self.inner = {"bias": [0.1, 0.2]}

    def __call__(self, v):
        return self.gain * v + self.inner["bias"][1]


"""


class Feature(NamedTuple):
    """Lines of `step` that compute a new `v`; lines of `__init__`; a change between two calls."""

    step: str
    init: str = ""
    change: str = ""
    keyword: str = ""  # of step


FEATURES = [
    # gradients of its own
    Feature("v = Sign.apply(v) * 0.5 + h"),
    Feature("v = Surrogate.apply(v, 3.0) - 0.2 * v"),
    Feature("p, q = Swapped.apply(v, h)\nv = 0.3 * p + 0.2 * q"),
    Feature("v = Rounded.apply(v, self.p)", "self.p = nn.Parameter(torch.rand(H) + 0.5)"),
    Feature("with torch.no_grad():\n    g = sigmoid(v)\nv = g * v"),
    Feature("with torch.set_grad_enabled(False):\n    g = tanh(v)\nv = v + g * h"),
    Feature("with torch.inference_mode():\n    g = 0.5 * v\nv = v + g"),
    Feature("if v.requires_grad:\n    v.register_hook(lambda g: g.clamp(-0.1, 0.1))"),
    Feature("u = sigmoid(v).detach_()\nv = v * u"),
    Feature("v = v + 0.3 * h.detach()"),
    Feature("with torch.enable_grad():\n    z = v.detach().requires_grad_()\n"
            "    (g,) = torch.autograd.grad(torch.sin(z).sum(), z)\nv = v + 0.1 * g"),
    Feature("u = sigmoid(v)\nv = u + (torch.round(u) - u).detach()"),
    Feature("v = rc.cells.spike(v) + 0.1 * v"),
    # draws
    Feature("v = v + 0.1 * torch.randn_like(v)"),
    Feature("v = v * torch.rand(v.shape, dtype=v.dtype)"),
    Feature("v = F.dropout(v, 0.3, self.training)"),
    Feature("v = self.drop(v)", "self.drop = nn.Dropout(0.4)"),
    Feature("v = v * torch.bernoulli(sigmoid(v))"),
    Feature("v = v + 0.2 * eps", 'self.noise("eps", H)', keyword="eps"),
    Feature("v = v * (uni > 0.3)", 'self.noise("uni", H, distribution="uniform")', keyword="uni"),
    Feature("v = v * kept", 'self.mask("kept", H, 0.4, each="step")', keyword="kept"),
    # effects
    Feature("self.n = self.n + 1\nv = v * (1 + 0.01 * self.n)", "self.n = 0"),
    Feature("self.total.add_(v.detach().mean())\nv = v + 0.01 * self.total",
            'self.register_buffer("total", torch.zeros(()))'),
    Feature("v = v + 0.1 * self.prev\nself.prev = v.detach().mean()", 'self.register_buffer("prev", torch.zeros(()))'),
    Feature("self.log.append(v.detach().mean())", "self.log = []"),
    Feature('COUNTS["steps"] += 1'),
    Feature("self.avg = 0.9 * self.avg + 0.1 * float(v.detach().mean())\nv = v - self.avg", "self.avg = 0.0"),
    Feature("v = self.norm(v) if v.shape[0] > 1 else v", "self.norm = nn.BatchNorm1d(H)"),
    # branches
    Feature("if x.shape[0] > 4:\n    v = 2 * v"),
    Feature("v = v / x.shape[0] if x.size(0) % 2 else v"),
    Feature("if float(v.detach().mean()) > 0:\n    v = -v"),
    Feature("if (v > 0.5).any():\n    v = 0.5 * v"),
    Feature("v = 0.5 * v if self.training else v", change="cell.train(not cell.training)"),
    Feature("v = v * 1.1 if torch.is_grad_enabled() else v"),
    Feature("try:\n    v = v + 0.1 * float(v.mean())\nexcept Exception:\n    v = 100 * v"),
    Feature("for _ in range(self.depth):\n    v = sigmoid(v) * v", "self.depth = 2", "cell.depth = 3"),
    Feature("v = v if v.dtype == torch.float64 else 0.9 * v"),
    Feature("v = v + (0.1 if v.requires_grad else 0.2)"),
    # numbers read out of tensors
    Feature("v = v * float(self.q[0])", "self.q = nn.Parameter(torch.rand(2) + 0.5)", "cell.q.data[0] += 0.3"),
    Feature("v = v * self.q.tolist()[1]", "self.q = nn.Parameter(torch.rand(2) + 0.5)", "cell.q.data[1] += 0.3"),
    Feature("v = v + self.q.detach().numpy().sum()", "self.q = nn.Parameter(torch.rand(2))", "cell.q.data.mul_(1.5)"),
    Feature("v = v * (self.q.max().item() + 0.5)", "self.q = nn.Parameter(torch.rand(3))", "cell.q.data.mul_(0.5)"),
    Feature("v = v[:, self.order]", 'self.register_buffer("order", torch.arange(H - 1, -1, -1))',
            "cell.order.copy_(torch.roll(torch.arange(cell.hidden_size), 1))"),
    # containers and names
    Feature('v = self.box["k"][0] * v', 'self.box = {"k": [0.8, 0.1]}', 'cell.box["k"][0] = 1.3'),
    Feature("v = self.settings.scale * v + self.settings.parts[1]", "self.settings = Settings()",
            "cell.settings.scale = 0.4"),
    Feature('v = GLOBAL["deep"][1]["er"] * v', change='space["GLOBAL"]["deep"][1]["er"] = 1.5'),
    Feature("v = FACTOR * v", change='space["FACTOR"] = 0.3'),
    Feature("v = scaled(v)", change='space["change_rate"](1.4)'),
    Feature("v = self.helper(v)", "self.helper = Helper()", 'cell.helper.inner["bias"][1] = -0.4'),
    Feature("v = v * self.CLASS_RATE", change="type(cell).CLASS_RATE = 0.2"),
    Feature("v = v * torch.from_numpy(self.array).to(v)", "self.array = numpy.full(H, 0.6)", "cell.array[0] = 2.0"),
    Feature("v = v * float(self.array[1])", "self.array = numpy.full(3, 0.6)", "cell.array[1] = 2.0"),
    Feature("v = sum(w * v for w in self.weights_)", "self.weights_ = [0.2, 0.3]", "cell.weights_.append(0.4)"),
    Feature("v = self.sub(v)", "self.sub = nn.Tanh()", "cell.sub = nn.Sigmoid()"),
    Feature("v = getattr(torch, self.kind)(v)", 'self.kind = "tanh"', 'cell.kind = "sin"'),
    Feature("v = self.table[self.mode](v)", 'self.table, self.mode = {"a": tanh, "b": sigmoid}, "a"',
            'cell.mode = "b"'),
    Feature("v = v * torch.tensor([0.5, 2.0]).repeat(v.shape[1])[: v.shape[1]].to(v)"),
    Feature("v = torch.where(v > self.low, v, torch.tensor(0.1).to(v))", "self.low = 0.0", "cell.low = 0.3"),
    # structure
    Feature("v = v.cumsum(-1) / v.shape[-1]"),
    Feature("v = v.sort(-1).values"),
    Feature("v = v - v.max(-1, keepdim=True).values"),
    Feature("v = self.gru(v, h)", "self.gru = nn.GRUCell(H, H)"),
    Feature("v = F.conv1d(v[:, None], self.w, padding=1)[:, 0]", "self.w = nn.Parameter(torch.rand(1, 1, 3))"),
    Feature("v = self.groups(v)", "self.groups = nn.GroupNorm(2, H)"),
]  # fmt: skip


@dataclass(frozen=True)
class OddCell:
    seed: int
    source: str
    changes: tuple[str, ...]

    def build(self) -> tuple[type[Cell], dict[str, Any]]:
        """A new class in a namespace of its own."""
        name = f"<odd cell {self.seed}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(keepends=True), name)
        space: dict[str, Any] = {"__name__": f"odd_cell_{self.seed}"}
        exec(compile(self.source, name, "exec"), space)
        return space[f"Odd{self.seed}"], space

    def change(self, cell: Cell, space: dict[str, Any]) -> None:
        """Everything that a program may change between two calls."""
        for line in self.changes:
            exec(line, {"cell": cell, "space": space, **{k: space[k] for k in ("torch", "nn")}})


def odd_cell(seed: int) -> OddCell:
    """The cell of this seed: one to four features, each at most once, and none that share a name."""
    rng = random.Random(f"odd {seed}")
    chosen: list[Feature] = []
    for feature in rng.sample(FEATURES, rng.choice([1, 1, 2, 2, 3, 4])):
        owned = {word for f in chosen for word in f.init.split() if "self." in word}
        if not owned & {word for word in feature.init.split() if "self." in word}:
            chosen.append(feature)
    keywords = [f.keyword for f in chosen if f.keyword]
    init = [line for f in chosen for line in f.init.split("\n") if line]
    step = [line for f in chosen for line in f.step.split("\n")]
    end = rng.choice(["return tanh(v)", "return 0.5 * h + tanh(v)", "h = tanh(v)\nreturn h * 0.9"]).split("\n")
    signature = ", ".join(["self", "x", "h", *(["*", *keywords] if keywords else [])])
    source = (
        f"{HEAD}class Odd{seed}(rc.Cell):\n    CLASS_RATE = 0.9\n\n    def __init__(self, input_size, hidden_size):\n"
        "        super().__init__(input_size, hidden_size)\n        H = hidden_size\n"
        '        self.a = self.affine("x", "h")\n'
        + "".join(f"        {line}\n" for line in init)
        + f"\n    def step({signature}):\n        v = self.a(x, h)\n"
        + "".join(f"        {line}\n" for line in [*step, *end])
    )
    return OddCell(seed, source, tuple(f.change for f in chosen if f.change))
