"""Compile C++ source to a shared library, cached on disk under a hash of source, options, compiler and processor.

The cache folder is `RECURRA_CACHE`, or the platform's cache folder of the user. If it is not writable, or writable by
other users, a private temporary folder is used. A library is loaded only if its bytes match the stored checksum;
processes that need the same library compile it once, under a file lock.
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
from .. import caches

FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno")
AS_WRITTEN = "-ffp-contract=off"  # no fused multiply-adds: the same expression gives the same bits
NATIVE = ("-march=native",)
THREADS = ("-fopenmp",)


class BuildError(RecurraError):
    """The C++ compiler did not accept the generated code."""


@functools.cache
def find_compiler() -> str | None:
    """Path of the C++ compiler: `CXX`, else g++, clang++ or c++; None without one, and on Windows."""
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
    """Load the library of this source; compile it if it is not cached."""
    return _load(source, options, folder())


@functools.lru_cache(maxsize=256)
def _load(source: str, options: tuple[str, ...], where: Path) -> ctypes.CDLL:
    path = where / f"{_key(source, options, where)}.so"
    if not _is_intact(path):
        with exclusive_lock(path.with_suffix(".lock")):
            if not _is_intact(path):
                _compile(source, options, path)
    return ctypes.CDLL(str(path))


caches.register("CPU libraries", _load.cache_clear, lambda: _load.cache_info().currsize)


# ---------------------------------------------------------------------------------------------------- the key


def _key(source: str, options: tuple[str, ...], where: Path) -> str:
    return hashlib.sha256("\0".join((source, *FLAGS, *options, _target(where))).encode()).hexdigest()[:32]


@functools.cache
def _target(where: Path) -> str:
    """A hash of the compiler's version and of the instruction set of this machine, cached in the folder."""
    path = find_compiler()
    if path is None:
        raise BuildError("no C++ compiler was found")
    about = os.stat(os.path.realpath(path))
    identity = f"{os.path.realpath(path)} {about.st_mtime_ns} {about.st_size} {_processor()}"
    note = where / f"target-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.txt"
    if note.exists():
        return note.read_text()
    text = _output_of(path, "--version") + _output_of(path, *NATIVE, "-dM", "-E", "-x", "c++", os.devnull)
    _write(note, hashlib.sha256(text.encode()).hexdigest().encode())
    return note.read_text()


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _processor() -> str:
    """Model and instruction set of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    wanted = {line for line in lines if line.split("\t")[0].strip() in ("model name", "flags", "Features", "CPU part")}
    return " ".join(sorted(wanted))


# ---------------------------------------------------------------------------------------------------- the folder


def folder() -> Path:
    """The folder of compiled libraries."""
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
    return place if _is_private(place) else _temporary()


def _is_private(place: Path) -> bool:
    """Whether the folder is writable for this user and for no other."""
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


def _is_intact(path: Path) -> bool:
    try:
        return path.with_suffix(".sum").read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return False


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(name, path)


# ---------------------------------------------------------------------------------------------------- the compiler


def _compile(source: str, options: tuple[str, ...], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as workplace:
        text, library = Path(workplace) / "program.cpp", Path(workplace) / "program.so"
        text.write_text(source, encoding="utf-8")
        errors = ""
        for more in (NATIVE + THREADS, NATIVE, THREADS, ()):  # some compilers lack some options
            command = [find_compiler() or "", *FLAGS, *options, *more, "-o", str(library), str(text)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            errors = errors or done.stderr
        else:
            raise BuildError(f"{find_compiler()} failed:\n{errors[-2000:]}")
        content = library.read_bytes()
        os.replace(library, path)
        _write(path.with_suffix(".sum"), hashlib.sha256(content).hexdigest().encode())
