"""Compiled code on disk: found again, rebuilt when damaged, shared by processes, private, and not needed at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import recurra as rc
from recurra.engine.cpu import compiler

RUN = """
import torch, recurra as rc, warnings, sys
from recurra.engine.cpu import compiler
torch.manual_seed(0)
layer, x = rc.layer("mgu", 3, 4), torch.randn(4, 2, 3)
y = layer(x)[0]
y.sum().backward()
with rc.set_backend("reference"):
    assert torch.allclose(y, layer(x)[0], atol=1e-6)
print(compiler.folder())
"""


def start(**environment: str) -> subprocess.Popen[str]:
    settings = os.environ | environment
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", RUN], env=settings, stdout=pipe, stderr=pipe, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return out.strip(), errors


def libraries(folder: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_mtime_ns, p.stat().st_size) for p in folder.glob("*.so")}


def test_the_next_process_finds_what_the_first_compiled_and_damage_is_repaired(tmp_path: Path):
    cache = tmp_path / "cache"
    assert finish(start(RECURRA_CACHE=str(cache)))[0] == str(cache)
    built = libraries(cache)
    assert len(built) >= 3  # products, forward, backward
    finish(start(RECURRA_CACHE=str(cache)))
    assert libraries(cache) == built
    damaged = cache / sorted(built)[0]
    damaged.write_bytes(damaged.read_bytes()[:1000])
    finish(start(RECURRA_CACHE=str(cache)))
    repaired = libraries(cache)
    assert repaired[damaged.name][1] == built[damaged.name][1]
    assert {n: v for n, v in repaired.items() if n != damaged.name} == {
        n: v for n, v in built.items() if n != damaged.name
    }


def test_two_processes_compile_at_once(tmp_path: Path):
    processes = [start(RECURRA_CACHE=str(tmp_path / "cache")) for _ in range(2)]
    for process in processes:
        finish(process)
    leftovers = {p.suffix for p in (tmp_path / "cache").iterdir()} - {".so", ".sum", ".lock", ".txt"}
    assert not leftovers


def test_a_folder_others_can_write_is_not_used(tmp_path: Path):
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    used, _ = finish(start(RECURRA_CACHE=str(open_to_all)))
    assert used != str(open_to_all)
    assert not list(open_to_all.iterdir())
    assert not Path(used).exists()  # a private one took its place, and is gone with the process


def test_a_path_that_is_no_folder_is_not_used(tmp_path: Path):
    (tmp_path / "file").write_text("")
    used, _ = finish(start(RECURRA_CACHE=str(tmp_path / "file")))
    assert used != str(tmp_path / "file")


def test_without_a_compiler_the_plan_runs_as_torch_operations(tmp_path: Path):
    _, errors = finish(start(RECURRA_CACHE=str(tmp_path / "none"), CXX="no-such-compiler"))
    assert errors.count("EngineWarning") == 1
    assert "no C++ compiler" in errors


@pytest.mark.filterwarnings("ignore::recurra.engine.backend.EngineWarning")
def test_without_a_compiler_cells_with_the_same_equations_run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    layer = rc.layer("lstm", 5, 5, num_layers=2)
    x = torch.randn(4, 2, 5)
    assert rc.explain(layer, x).count("backend: replayed") == 2
    layer(x)[0].sum().backward()


def test_code_that_does_not_compile_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RECURRA_CACHE", str(tmp_path))
    with pytest.raises(compiler.BuildError, match="failed"):
        compiler.load("this is not C++")
