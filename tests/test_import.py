"""What torch, numpy and safetensors are enough for, what says which extra it needs, and how fast an import is."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "tests" / "torch_alone.py"

# Runs first in a fresh interpreter: what stands in `blocked` is not found, as if it were not installed.
BLOCK = """
import importlib.machinery, sys
class Installed(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else super().find_spec(name, path, target)
sys.meta_path = [Installed if each is importlib.machinery.PathFinder else each for each in sys.meta_path]
"""

NAMES = """
import recurra as rc
rc.Cell, rc.RecurraError, rc.Recurrent, rc.Zoneout, rc.cells, rc.init, rc.explain, rc.from_torch, rc.set_backend
"""

LAYER = """
import torch, recurra as rc
y, _ = rc.LSTM(3, 4, num_layers=2, bidirectional=True)(torch.randn(5, 2, 3), lengths=torch.tensor([5, 3]))
y.sum().backward()
"""

COMMAND = """
import runpy
import sys
sys.argv = ["recurra", "cells"]
runpy.run_module("recurra", run_name="__main__")
"""


def test_three_packages_are_enough():
    done = run_without_extras(SCRIPT.read_text())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", [NAMES, LAYER], ids=["names", "layer"])
def test_a_layer_needs_torch_alone(program):
    done = run_without_extras(program, "torch")
    assert done.returncode == 0, done.stderr


def test_the_command_says_what_to_install():
    done = run_without_extras(COMMAND)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "the command recurra needs typer: pip install 'recurra[cli]'\n"


def test_the_other_packages_are_really_out_of_reach():
    done = run_without_extras("import torch; import pyarrow")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("ModuleNotFoundError: No module named 'pyarrow'")


def test_dependencies_are_three_and_dev_has_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {Requirement(each).name for each in project["dependencies"]} == {"torch", "numpy", "safetensors"}
    extras = project["optional-dependencies"]
    assert included(extras, "all") == set(extras) - {"dev", "docs"}
    assert "all" in included(extras, "dev")


def included(extras: dict[str, list[str]], name: str) -> set[str]:
    """`name` and every extra of recurra it brings."""
    own = [Requirement(each).extras for each in extras[name] if Requirement(each).name == "recurra"]
    return {name}.union(*(included(extras, inner) for group in own for inner in group))


def run_without_extras(program: str, *installed: str) -> subprocess.CompletedProcess[str]:
    """Run a program where only these distributions and what they require can be imported."""
    needed = {"recurra", "optree"}.union(*map(with_requirements, installed or ("torch", "numpy", "safetensors")))
    # optree: torch finds it by its metadata, which is not hidden here, and then imports it
    blocked = {module for module, owners in packages_distributions().items() if not needed & set(map(plain, owners))}
    assert {"scipy", "sklearn", "pyarrow", "typer", "rich", "pydantic", "plotly"} <= blocked
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
    except PackageNotFoundError:  # required on another platform, and not installed here
        return []


def applies(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
