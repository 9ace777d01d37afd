"""Command, hardware, versions and date of a committed result, from its JSON files or else from its text."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .speed_results import RESULTS

COMMAND = re.compile(r"((?:OMP_\w+=\w+ )*python (?:-m benchmarks\.|benchmarks/)[^`|\n]+?)(?=[`|\n])")
DATE = re.compile(r"20\d\d-\d\d-\d\d")
PROCESSOR = re.compile(r"AMD EPYC|Intel\(R\) [^.,;]+GHz|H200")
VERSIONS = (
    *("torch", "triton", "cudnn", "jax", "torchrecurrent", "snntorch", "spikingjelly", "pyarrow"),
    *("flash-linear-attention", "mlstm_kernels"),
)


@dataclass(frozen=True)
class Facts:
    """What is known of a measurement; an empty string is not known."""

    command: str
    hardware: str
    versions: str
    date: str

    def sentence(self) -> str:
        """All of it in one line, which says what was not recorded."""
        known = [f"`{self.command}`" if self.command else "", self.hardware, self.versions, self.date]
        names = ("command", "hardware", "versions", "date")
        missing = " and ".join(name for name, value in zip(names, known, strict=True) if not value)
        line = "; ".join(value for value in known if value)
        return f"{line}{f' ({missing} not recorded)' if missing else ''}."


def facts(name: str, text: str) -> Facts:
    """Of the result `name`, whose table is `text`."""
    files = [path for path in sorted(RESULTS.glob(f"{name}*.json")) if path.stem == name or name == "learning"]
    found = [_environment(json.loads(path.read_text(encoding="utf-8"))) for path in files]
    about: dict[str, Any] = next((each for each in found if each), {})
    return Facts(_command(about, text), _hardware(about, text), _versions(about, text), _date(name, about, text))


def _environment(value: Any) -> dict[str, Any]:
    """The first dictionary that names a processor, a device or torch; `command` and `when` may stand around it."""
    if not isinstance(value, dict):
        return {}
    kept = {key: value[key] for key in ("command", "when") if isinstance(value.get(key), str)}
    is_card = value.get("device") not in (None, "cuda", "cpu")
    if value.get("processor") or is_card or isinstance(value.get("torch"), str):
        return value
    inner = next((found for each in value.values() if (found := _environment(each)) and len(found) > 1), {})
    return kept | inner


def _command(about: dict[str, Any], text: str) -> str:
    if command := about.get("command"):
        return command
    if found := COMMAND.search(text):
        return found.group(1).strip()
    script = re.search(r"`(benchmarks/\w+\.py)`", text)
    return f"python {script.group(1)}" if script else "make bench" if "`make bench`" in text else ""


def _hardware(about: dict[str, Any], text: str) -> str:
    if device := about.get("device"):
        return device.removeprefix("NVIDIA ")
    named = PROCESSOR.search(text)
    processor = about.get("processor") or (named.group() if named else "")
    cores = about.get("cores")
    return f"{processor}, {cores} cores" if processor and cores else processor


def _versions(about: dict[str, Any], text: str) -> str:
    known = [f"{name} {about[name]}" for name in VERSIONS if about.get(name)]
    return ", ".join(known) or ", ".join(dict.fromkeys(re.findall(r"torch \d[\w.+]*", text)))


def _date(name: str, about: dict[str, Any], text: str) -> str:
    """When it was measured; failing that, when it was committed, where there is a git history."""
    if when := about.get("when"):
        return when[:10]
    if found := DATE.findall(text):
        return max(found)
    paths = [path for path in (RESULTS / f"{name}.json", RESULTS / f"{name}.md") if path.is_file()]
    return f"committed {committed}" if paths and (committed := _committed(paths[0])) else ""


def _committed(path: Path) -> str:
    command = ["git", "-C", str(path.parent), "log", "-1", "--format=%as", "--", path.name]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
