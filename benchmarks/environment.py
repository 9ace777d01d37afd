"""The environment of a measurement: processor, versions and commit, for every results file."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import recurra as rc

ROOT = Path(__file__).resolve().parent.parent


def environment(*packages: str) -> dict[str, str | int | None]:
    """Processor, cores, versions and git commit; `packages` adds the versions of further distributions.

    A version is None where the distribution is absent, the commit None outside a git checkout.
    """
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "recurra": rc.__version__,
        **{name: _version(name) for name in packages},
        "commit": commit(),
    }


def processor() -> str:
    """The model name of the processor, or its architecture where the system does not tell."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of this checkout; `-dirty` at its end means uncommitted changes, other than to results."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}-dirty" if changed else head


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
