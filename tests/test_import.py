"""Cells, layers and the built-in data need torch and what torch itself installs, nothing else."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement

# Runs first in a fresh interpreter: what stands in `blocked` cannot be imported, as if it were not installed.
BLOCK = """
import importlib.abc, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""

NAMES = """
import recurra as rc
rc.Cell, rc.RecurraError, rc.Recurrent, rc.Zoneout, rc.cells, rc.init, rc.explain, rc.from_torch, rc.set_backend
"""

LAYERS = """
import torch, recurra as rc
x = torch.randn(5, 2, 3)
y, (h, c) = rc.LSTM(3, 4, num_layers=2, bidirectional=True)(x, lengths=torch.tensor([5, 3]))
y.sum().backward()
assert y.shape == (5, 2, 8)
for name in rc.registry():
    y, _ = rc.layer(name, 3, 4)(x)
    assert y.shape[:2] == (5, 2) and y.isfinite().all(), name
"""

DATA = """
from recurra.data.japanese_vowels import japanese_vowels
assert len(japanese_vowels("test").sequences) == 370
"""


@pytest.mark.parametrize("program", [NAMES, LAYERS, DATA], ids=["names", "layers", "data"])
def test_torch_alone_is_enough(program):
    done = run_with_torch_alone(program)
    assert done.returncode == 0, done.stderr


def test_the_other_packages_are_really_out_of_reach():
    done = run_with_torch_alone("import torch; import pyarrow")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("ModuleNotFoundError: No module named 'pyarrow'")


def run_with_torch_alone(program: str) -> subprocess.CompletedProcess[str]:
    needed = with_requirements("torch") | {"recurra"}
    blocked = {module for module, owners in packages_distributions().items() if not needed & set(map(plain, owners))}
    blocked |= {"jinja2"}  # torch installs it, but recurra must not need it before a report is written
    assert {"numpy", "scipy", "sklearn", "pyarrow", "safetensors", "typer", "rich", "pydantic", "plotly"} <= blocked
    code = f"blocked = {sorted(blocked)!r}{BLOCK}{program}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)


def with_requirements(name: str) -> set[str]:
    """`name` and every distribution it needs on this machine, without extras."""
    found, todo = set(), [plain(name)]
    while todo:
        if (name := todo.pop()) not in found:
            found.add(name)
            todo += [plain(r.name) for r in map(Requirement, requirements(name)) if applies(r)]
    return found


def requirements(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:  # required on another platform's word, and not installed here
        return []


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
