"""Windows and macOS, simulated in a child process: what cannot work there is left out, and the rest runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# torch is imported before the platform is set: it would look for its own libraries of that platform.
TORCH = "import torch, torch._dynamo\n"
WINDOWS = """
import fcntl, mmap, os, sys, types, multiprocessing, tempfile, warnings
sys.modules["fcntl"] = None
def locking(descriptor, mode, count):
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied")
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
sys.platform = "win32"
for module, names in ((mmap, ["MAP_PRIVATE", "MAP_ANONYMOUS", "MADV_HUGEPAGE"]), (os, ["getuid", "fork"])):
    for name in names:
        delattr(module, name)
"""

LAYERS = """
import recurra as rc
x = torch.randn(5, 2, 3)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    layer = rc.LSTM(3, 4)
    y, _ = layer(x)
    y.sum().backward()
with rc.set_backend("reference"):
    torch.testing.assert_close(layer(x)[0], y)
assert [str(each.message) for each in said] == [
    "recurra compiles for Linux and macOS, not for Windows: layers run as torch operations."
], said
print(rc.explain(layer, x))
assert rc.CRF(3).decode(torch.randn(5, 2, 3))
"""

CHECKPOINTS = """
import recurra as rc
warnings.simplefilter("ignore")
data = rc.data.SequenceSet.from_arrays([torch.randn(4, 2)] * 4, [torch.zeros(4, dtype=torch.int64)] * 4, "tagging")
with tempfile.TemporaryDirectory() as folder:
    for epochs in (1, 2):
        model = rc.train.Predictor(rc.GRU(2, 3), 2)
        done = rc.train.fit(model, data, epochs=epochs, batch_size=2, device="cpu", progress=False, checkpoints=folder)
    assert done.steps == 4, done
"""

LOCKS = """
from pathlib import Path
from recurra.file_lock import exclusive_lock
with tempfile.TemporaryDirectory() as folder:
    with exclusive_lock(Path(folder) / "lock"):
        try:
            with exclusive_lock(Path(folder) / "lock", wait=False):
                print("two at once")
        except BlockingIOError:
            print("one at a time")
"""

# Apple's clang knows neither option on its own processors.
APPLE_CLANG = """#!/bin/sh
for option; do case $option in -march=native|-fopenmp) echo "unsupported option $option" >&2; exit 1;; esac; done
exec {compiler} "$@"
"""

COMPILED = """
import sys, torch
sys.platform = "darwin"
import recurra as rc
layer, x = rc.GRU(3, 4), torch.randn(5, 2, 3)
torch.set_num_threads(2)
y, _ = layer(x)
y.sum().backward()
with rc.set_backend("reference"):
    torch.testing.assert_close(layer(x)[0], y)
print(str(rc.explain(layer, x)))
"""


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_layers_and_checkpoints_on_windows():
    assert "backend: replay" in run(TORCH + WINDOWS + LAYERS + CHECKPOINTS)


def test_locks_on_windows():
    assert run(WINDOWS + LOCKS) == "one at a time\n"


@pytest.mark.slow
def test_a_compiler_without_openmp_and_native_options(tmp_path: Path):
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    wrapper = tmp_path / "clang++"
    wrapper.write_text(APPLE_CLANG.format(compiler=compiler))
    wrapper.chmod(0o755)
    assert "backend: compiled" in run(COMPILED, CXX=str(wrapper), RECURRA_CACHE=str(tmp_path / "cache"))
