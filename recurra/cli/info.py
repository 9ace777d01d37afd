"""`recurra info`: versions, devices, compiler and cache."""

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from recurra.cli.options import Json

PACKAGES = ("torch", "scikit-learn", "pyarrow", "safetensors", "numpy", "triton")
EXTRAS = {
    "text": "tokenizers",
    "elmo": "h5py",
    "onnx": "onnxruntime",
    "tune": "optuna",
    "evo": "cma",
    "excel": "openpyxl",
}


def info(json: Json = False) -> None:
    """Show versions, devices, compiler and cache, for bug reports."""
    from recurra.cli import printing

    found = collect_info()
    printing.print_json(found) if json else _print(found)


def collect_info() -> dict[str, Any]:
    """Everything `recurra info` prints, as JSON values."""
    import torch

    import recurra
    from recurra.engine.cpu.compiler import find_compiler, folder

    cache = folder()
    sizes = _sizes(cache)
    return {
        "recurra": recurra.__version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "packages": {name: _version(name) for name in PACKAGES},
        "extras": {extra: _version(name) for extra, name in EXTRAS.items()},
        "cpu": {"name": _processor(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "gpus": [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())],
        "compiler": _compiler(find_compiler()),
        "cache": {
            "folder": str(cache),
            "kernels": sum(path.suffix == ".so" for path in sizes),
            "bytes": sum(sizes.values()),
        },
    }


def _sizes(folder: Path) -> dict[Path, int]:
    """File → bytes below a folder. Files that another process removes meanwhile are skipped."""
    found = {}
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):
                found[path] = path.stat().st_size
    return found


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    lines = described.read_text(encoding="utf-8").splitlines() if described.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _compiler(path: str | None) -> str | None:
    import subprocess

    if path is None:
        return None
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return f"{path}, {answer.stdout.splitlines()[0]}" if answer.returncode == 0 and answer.stdout else path


def _print(found: dict[str, Any]) -> None:

    from recurra.cli.printing import print_pairs, stdout_console

    def versions(packages: dict[str, str | None]) -> str:
        return ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())

    cpu, cache = found["cpu"], found["cache"]
    rows = [
        ("recurra", f"{found['recurra']}, Python {found['python']}, {found['system']}"),
        ("packages", versions(found["packages"])),
        ("extras", ", ".join(f"{extra} ({EXTRAS[extra]} {v or 'missing'})" for extra, v in found["extras"].items())),
        ("CPU", f"{cpu['name']}, {cpu['cores']} cores, torch threads: {cpu['threads']}"),
        ("GPU", ", ".join(found["gpus"]) or "none found by torch"),
        (
            "compiler",
            found["compiler"] or "none, so cells run as torch operations, slower; install g++ or clang++",
        ),
        ("cache", f"{cache['folder']}, {cache['kernels']:,} kernels, {cache['bytes'] / 1e6:.1f} MB"),
    ]
    print_pairs(rows, stdout_console())
