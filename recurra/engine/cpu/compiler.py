"""C++ text → a loaded library: compiled once, kept on disk under the hash of everything that went into it.

The folder belongs to the user: `RECURRA_CACHE`, or the platform's place for caches. One that cannot be written, or
that others may write, is not used; a private temporary folder takes its place. A library is loaded only if its bytes
have the checksum that was written beside it; two processes that want the same one take turns.
"""

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from ...errors import RecurraError
from ...file_lock import exclusive_lock

FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno")
AS_WRITTEN = "-ffp-contract=off"  # what is written twice gives the same bits twice
NATIVE = ("-march=native",)
THREADS = ("-fopenmp",)


class BuildError(RecurraError):
    """The system's compiler did not accept the generated code."""


@functools.cache
def find_compiler() -> str | None:
    """The C++ compiler of this machine: `CXX`, or the first of the usual names; None without one, and on Windows."""
    if sys.platform == "win32":  # the kernels are written for the options and extensions of GCC and Clang
        return None
    wanted = os.environ.get("CXX")
    names = (wanted,) if wanted is not None else ("g++", "clang++", "c++")
    return next((path for name in names if name and (path := shutil.which(name))), None)


def why_no_compiler() -> str:
    if sys.platform == "win32":
        return "recurra compiles for Linux and macOS, not for Windows"
    return "recurra found no C++ compiler (set CXX, or install g++ or clang++)"


def load(source: str, *options: str) -> ctypes.CDLL:
    """The library of this source, compiled if it is not on disk yet."""
    return _load(source, options, folder())


@functools.lru_cache(maxsize=256)
def _load(source: str, options: tuple[str, ...], where: Path) -> ctypes.CDLL:
    path = where / f"{_key(source, options, where)}.so"
    if not _intact(path):
        with exclusive_lock(path.with_suffix(".lock")):
            if not _intact(path):
                _compile(source, options, path)
    return ctypes.CDLL(str(path))


# ---------------------------------------------------------------------------------------------------- the key


def _key(source: str, options: tuple[str, ...], where: Path) -> str:
    return hashlib.sha256("\0".join((source, *FLAGS, *options, _target(where))).encode()).hexdigest()[:32]


@functools.cache
def _target(where: Path) -> str:
    """The compiler's version and the instructions it may use here. Asking takes a while, so the answer is kept."""
    path = find_compiler()
    if path is None:
        raise BuildError("no C++ compiler was found")
    about = os.stat(os.path.realpath(path))
    asked = f"{os.path.realpath(path)} {about.st_mtime_ns} {about.st_size} {_processor()}"
    note = where / f"target-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.txt"
    if note.exists():
        return note.read_text()
    text = _ask(path, "--version") + _ask(path, *NATIVE, "-dM", "-E", "-x", "c++", os.devnull)
    _write(note, hashlib.sha256(text.encode()).hexdigest().encode())
    return note.read_text()


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _processor() -> str:
    """What the processor can do, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    wanted = {line for line in lines if line.split("\t")[0].strip() in ("model name", "flags", "Features", "CPU part")}
    return " ".join(sorted(wanted))


# ---------------------------------------------------------------------------------------------------- the folder


def folder() -> Path:
    """Where libraries are kept."""
    return _folder(os.environ.get("RECURRA_CACHE"), os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@functools.cache
def _folder(wanted: str | None, caches: str | None, home: str | None) -> Path:
    if wanted:
        place = Path(wanted)
    elif sys.platform == "darwin":
        place = Path(home or "~").expanduser() / "Library" / "Caches" / "recurra"
    elif sys.platform == "win32":
        place = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "recurra"
    else:
        place = Path(caches) / "recurra" if caches else Path(home or "~").expanduser() / ".cache" / "recurra"
    return place if _ours(place) else _temporary()


def _ours(place: Path) -> bool:
    """Whether we can write there and nobody else can."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = place.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):  # Windows: a folder of the user's profile is private by its access list
        return place.is_dir() and os.access(place, os.W_OK)
    private = about.st_uid == os.getuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return private and stat.S_ISDIR(about.st_mode) and os.access(place, os.W_OK | os.X_OK)


def _temporary() -> Path:
    place = Path(tempfile.mkdtemp(prefix="recurra-"))
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(place, ignore_errors=True))
    return place


def _intact(path: Path) -> bool:
    try:
        return path.with_suffix(".sum").read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(name, path)


# ---------------------------------------------------------------------------------------------------- the compiler


def _compile(source: str, options: tuple[str, ...], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as workplace:
        text, library = Path(workplace) / "program.cpp", Path(workplace) / "program.so"
        text.write_text(source, encoding="utf-8")
        complaints = ""
        for more in (NATIVE + THREADS, NATIVE, THREADS, ()):  # not every compiler knows every option
            command = [find_compiler() or "", *FLAGS, *options, *more, "-o", str(library), str(text)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            complaints = complaints or done.stderr
        else:
            raise BuildError(f"{find_compiler()} failed:\n{complaints[-2000:]}")
        content = library.read_bytes()
        os.replace(library, path)
        _write(path.with_suffix(".sum"), hashlib.sha256(content).hexdigest().encode())
