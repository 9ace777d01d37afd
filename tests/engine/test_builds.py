"""Compilers and cache folders that do not work: layers run as torch operations, with one warning and no other error."""

import ctypes
import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from waiting import wait_until

import recurra as rc
from recurra.engine import caches
from recurra.engine.cpu import compiler
from recurra.engine.cpu.executor import CpuExecutor
from recurra.engine.dispatch import choose
from recurra.engine.reference import Sequences

pytestmark = pytest.mark.skipif(compiler.find_compiler() is None, reason="needs a C++ compiler")

COMPILER = str(compiler.find_compiler())
_numbers = itertools.count(1)


class Leaky(rc.Cell):
    """New equations in each instance: no test finds kernels that another one compiled."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.rate = 1 / (1 + next(_numbers))

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        return (1 - self.rate) * h + self.rate * torch.tanh(self.a(x, h))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own, and no memory of libraries and failures."""
    monkeypatch.setenv("RECURRA_CACHE", str(tmp_path / "cache"))
    caches.clear_caches()
    yield tmp_path / "cache"
    caches.clear_caches()


def use_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A compiler that is this shell script; `$out` is the library it is asked for, empty for a question."""
    path = folder / "fake-c++"
    find_out = 'out=; for word; do [ "$before" = -o ] && out=$word; before=$word; done\n'
    path.write_text(f"#!/bin/sh\n{find_out}{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(compiler, "find_compiler", lambda: str(path))


def runs_as(layer: rc.Recurrent, x: torch.Tensor) -> str:
    return choose(layer.cell_list[0], Sequences(x, None, {}, None, None)).backend


def check_replayed(match: str) -> None:
    """Two cells in two calls each: right values and gradients, and one warning."""
    layers = [rc.Recurrent(Leaky, 3, 4).double() for _ in range(2)]
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    with pytest.warns(rc.EngineWarning, match=match) as caught:
        found = [gradients(layer, x) for layer in (*layers, *layers)]
    assert len(caught) == 1
    assert [runs_as(layer, x) for layer in layers] == ["replayed", "replayed"]
    with rc.set_backend("reference"):
        torch.testing.assert_close(found, [gradients(layer, x) for layer in (*layers, *layers)])


def gradients(layer: rc.Recurrent, x: torch.Tensor) -> list[torch.Tensor]:
    y = layer(x)[0]
    return [y.detach(), *torch.autograd.grad(y.square().sum(), [*layer.parameters()])]


FAKES = {
    "writes nothing": ("exit 0", "wrote no whole library"),
    "writes garbage": ('[ -z "$out" ] || echo garbage > "$out"', "wrote no whole library"),
    "writes half a library": (
        f'{COMPILER} "$@" && [ -z "$out" ] || {{ head -c 5000 "$out" > "$out.half" && mv "$out.half" "$out"; }}',
        "wrote no whole library",
    ),
    "writes an empty library": (
        f'[ -z "$out" ] || {{ echo "" > "$out.cpp"; {COMPILER} -shared -fPIC -o "$out" "$out.cpp"; }}',
        "cannot be loaded",
    ),
    "prints bytes that are no text": ("printf '\\377\\376' >&2; exit 1", "did not compile"),
    "is no program": (None, "cannot build libraries"),
}


@pytest.mark.parametrize("fake", FAKES)
def test_a_compiler_that(fake: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script, message = FAKES[fake]
    use_compiler(tmp_path, monkeypatch, script or "")
    if script is None:
        (tmp_path / "fake-c++").write_bytes(b"\x7fELF nonsense")
    check_replayed(message)
    assert not list(cache.glob("*.so"))  # nothing that a later process would take for a library


def test_a_compiler_that_hangs_is_stopped_with_its_children(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    said = tmp_path / "child"
    use_compiler(tmp_path, monkeypatch, f'[ -z "$out" ] || {{ sleep 900 & echo $! > {said}; wait; }}')
    for seconds in ("0.5", "10", "120"):  # on a busy machine a shell may need some of them to start a child
        monkeypatch.setenv("RECURRA_COMPILE_SECONDS", seconds)
        caches.clear_caches()
        check_replayed(f"did not finish in {seconds} s")
        if said.exists() and said.read_text():
            break
    child = int(said.read_text())
    wait_until(lambda: not _is_alive(child))


def _is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def test_the_limit_is_two_minutes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RECURRA_COMPILE_SECONDS", raising=False)
    assert compiler._limit() == 120
    for value, limit in {"7.5": 7.5, "soon": 120, "0": 120, "nan": 120}.items():
        monkeypatch.setenv("RECURRA_COMPILE_SECONDS", value)
        assert compiler._limit() == limit


# ---------------------------------------------------------------------------------------------------- folders


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[bool]:
    """A file system in memory; yields False where mounting is not allowed."""
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"{options},mode=700", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_folder_whose_files_are_not_executed(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: str) -> ctypes.CDLL:
        raise OSError(f"{path}: failed to map segment from shared object")

    with mounted(cache, "size=64m,noexec") as done:
        if not done:
            monkeypatch.setattr(ctypes, "CDLL", refuse)
        check_replayed("failed to map segment")


def test_a_full_folder(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with mounted(cache, "size=64k") as done:
        if done:
            (cache / "fill").write_bytes(b"0" * 40_000)  # a source still fits, a library does not
        else:
            monkeypatch.setattr(Path, "write_text", refuse)
        check_replayed("[Nn]o space")
        assert not done or [path.name for path in cache.iterdir() if path.is_dir()] == []


def test_a_file_system_without_locks(cache: Path, monkeypatch: pytest.MonkeyPatch):
    """Libraries are compiled all the same: each is renamed into place whole."""

    @contextmanager
    def refuse(*_: object, **__: object) -> Iterator[None]:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        yield

    monkeypatch.setattr(compiler, "exclusive_lock", refuse)
    layer, x = rc.Recurrent(Leaky, 3, 4), torch.randn(5, 2, 3)
    layer(x)
    assert runs_as(layer, x) == "compiled"


def test_a_lock_that_another_process_never_gives_back(cache: Path, monkeypatch: pytest.MonkeyPatch):
    @contextmanager
    def refuse(*_: object, **__: object) -> Iterator[None]:
        raise BlockingIOError
        yield

    monkeypatch.setattr(compiler, "exclusive_lock", refuse)
    monkeypatch.setattr(compiler, "_limit", lambda: 0.2)
    with compiler._locked(cache):
        pass


# ---------------------------------------------------------------------------------------------------- every load


def test_the_folder_is_checked_at_every_load(cache: Path):
    compiler.load("int first;")
    assert compiler.folder() == cache
    cache.chmod(0o777)
    assert compiler.folder() != cache
    before = sorted(cache.iterdir())
    compiler.load("int second;")
    assert sorted(cache.iterdir()) == before
    cache.chmod(0o700)
    assert compiler.folder() == cache


def test_a_library_replaced_by_another_is_not_loaded(cache: Path):
    """Bytes and checksum are right, but the library was made from another source."""
    compiler.load('extern "C" int answer() { return 1; }')
    (mine,) = cache.glob("*.so")
    key = compiler._key("int other;", (), cache)
    for suffix in (".so", ".sum"):
        (cache / f"{key}{suffix}").write_bytes(mine.with_suffix(suffix).read_bytes())
    with pytest.raises(compiler.BuildError, match="another library"):
        compiler.load("int other;")


def test_kernels_that_are_built_late_may_fail(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Products ahead of the loop get a kernel of their own at the first long call; by then the compiler may be gone."""
    torch.manual_seed(0)
    layer, x = rc.Recurrent(Leaky, 64, 64), torch.randn(20, 1, 64)
    monkeypatch.setattr(CpuExecutor, "_worth_hoisting", lambda self, layout: layout.steps > 5)
    with torch.no_grad():
        layer(x[:2])
        assert runs_as(layer, x[:2]) == "compiled"
        monkeypatch.setattr(compiler, "_compile", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        with pytest.warns(rc.EngineWarning, match="stay in the loop"):
            y = layer(x)[0]
        with rc.set_backend("reference"):
            torch.testing.assert_close(y, layer(x)[0], rtol=1e-4, atol=1e-5)


CHILD = """
import torch, recurra as rc
y = rc.GRU(3, 4)(torch.zeros(5, 2, 3))[0]
assert y.shape == (5, 2, 4)
"""


def test_a_process_with_nowhere_to_write_runs(tmp_path: Path):
    """Neither a cache folder nor a temporary one can be made."""
    (tmp_path / "file").write_text("")
    nowhere = str(tmp_path / "file" / "below")
    code = f"import tempfile\ntempfile.mkdtemp = lambda **_: open({nowhere!r}, 'x')\n{CHILD}"
    settings = os.environ | {"RECURRA_CACHE": nowhere}
    done = subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("EngineWarning") == 1
