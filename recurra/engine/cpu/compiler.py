"""Compile C++ source to a shared library, cached on disk under a hash of source, options, compiler and processor.

The cache folder is `RECURRA_CACHE`, or the platform's cache folder of the user. If it is not writable, or writable by
other users, a private temporary folder is used; this is checked at every load. A library is loaded only if its bytes
match the stored checksum; processes that need the same library compile it once, under a file lock where the file system
has locks. Everything that can go wrong is one `BuildError`: no compiler or one that fails, hangs, or writes no library,
a full folder, or one whose files the system does not execute.
"""

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...errors import RecurraError
from ...file_lock import exclusive_lock
from .. import caches

FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno")
AS_WRITTEN = "-ffp-contract=off"  # no fused multiply-adds: the same expression gives the same bits
NATIVE = ("-march=native",)
THREADS = ("-fopenmp",)
SECONDS = 120.0  # that a compiler may take for a library; the variable RECURRA_COMPILE_SECONDS overrides it
POLL = 0.05  # seconds between two attempts to lock


class BuildError(RecurraError):
    """A library could not be compiled or loaded."""


class BrokenBuildError(BuildError):
    """No library can be built: the compiler or the folder does not work, whatever the source."""


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
    try:
        return _load(source, options, folder(), find_compiler())
    except OSError as error:
        raise BrokenBuildError(f"recurra cannot build libraries here: {error}") from error


@functools.lru_cache(maxsize=256)
def _load(source: str, options: tuple[str, ...], where: Path, compiler: str | None) -> ctypes.CDLL:
    if (where, compiler) in _broken:  # each attempt may take as long as a compiler that hangs
        raise BrokenBuildError(_broken[where, compiler])
    try:
        return _load_or_compile(source, options, where)
    except (OSError, BrokenBuildError) as error:
        reason = f"recurra cannot build libraries in {where} (RECURRA_CACHE): {error}"
        reason = _broken.setdefault((where, compiler), reason)  # threads that fail at the same time give one reason
        raise BrokenBuildError(reason) from error


_broken: dict[tuple[Path, str | None], str] = {}  # why nothing can be built in a folder with a compiler


def _load_or_compile(source: str, options: tuple[str, ...], where: Path) -> ctypes.CDLL:
    key = _key(source, options, where)
    path, is_new = where / f"{key}.so", False
    if not _is_intact(path):
        with _locked(path.with_suffix(".lock")):
            if is_new := not _is_intact(path):
                _compile(source + _SIGNED % key, options, path)
    try:
        library = ctypes.CDLL(str(path))
        signature = (ctypes.c_char * len(key)).in_dll(library, "recurra_library").value.decode("ascii", "replace")
    except (OSError, ValueError) as error:
        if is_new:  # the compiler may have written nonsense
            _discard(path)
        raise BrokenBuildError(f"the compiled library cannot be loaded: {error}") from error
    if signature != key:
        raise BrokenBuildError(f"{find_compiler()} wrote another library")
    return library


# A library says which source it was compiled from.
_SIGNED = '\nextern "C" {\nextern const char recurra_library[];\nconst char recurra_library[] = "%s";\n}\n'


def _forget() -> None:
    _load.cache_clear()
    _broken.clear()


caches.register("CPU libraries", _forget, lambda: _load.cache_info().currsize)


# ---------------------------------------------------------------------------------------------------- the key


def _key(source: str, options: tuple[str, ...], where: Path) -> str:
    return hashlib.sha256("\0".join((source, _SIGNED, *FLAGS, *options, _target(where))).encode()).hexdigest()[:32]


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
        return note.read_text(errors="replace")
    said = (_run(path, "--version")[1], _run(path, *NATIVE, "-dM", "-E", "-x", "c++", os.devnull)[1])
    text = hashlib.sha256("".join(said).encode()).hexdigest()
    _write(note, text.encode())
    return text


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


@functools.cache
def _temporary() -> Path:
    place = Path(tempfile.mkdtemp(prefix="recurra-"))
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(place, ignore_errors=True))
    return place


def _is_intact(path: Path) -> bool:
    """Whether a library is this user's file and has the bytes that were written."""
    try:
        private = not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()
        return private and path.with_suffix(".sum").read_bytes() == _checksum(path.read_bytes())
    except OSError:
        return False


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _discard(path: Path) -> None:
    for file in (path.with_suffix(".sum"), path):
        file.unlink(missing_ok=True)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock, if the file system has locks and no process holds it longer than a compiler may take. Without one,
    processes may compile the same library twice; each renames a whole file into place."""
    deadline = time.monotonic() + _limit()
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(exclusive_lock(path, wait=False))
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(POLL)
                    continue
            except OSError:
                pass
            break
        yield


# ---------------------------------------------------------------------------------------------------- the compiler


def _compile(source: str, options: tuple[str, ...], path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as workplace:
        text, library = Path(workplace) / "program.cpp", Path(workplace) / "program.so"
        text.write_text(source, encoding="utf-8")
        errors = ""
        for more in (NATIVE + THREADS, NATIVE, THREADS, ()):  # some compilers lack some options
            code, _, said = _run(find_compiler() or "", *FLAGS, *options, *more, "-o", str(library), str(text))
            if code == 0:
                break
            errors = errors or said
        else:
            raise _failure(path.parent, errors)
        content = library.read_bytes() if library.exists() else b""
        if not _is_whole(content):
            raise BrokenBuildError(f"{find_compiler()} reported success and wrote no whole library")
        os.replace(library, path)
        _write(path.with_suffix(".sum"), _checksum(content))


def _failure(folder: Path, errors: str) -> BuildError:
    """A compiler that fails in a full folder would fail for every source."""
    if shutil.disk_usage(folder).free < 1 << 16:
        return BrokenBuildError(f"no space is left: {errors[-200:].strip()}")
    return BuildError(f"{find_compiler()} failed:\n{errors[-2000:]}")


def _is_whole(content: bytes) -> bool:
    """Whether an ELF file has all its sections: the process dies if it maps one that was cut off."""
    if sys.platform != "linux":
        return len(content) > 0
    if content[:4] != b"\x7fELF" or len(content) < 64 or content[4] != 2:  # not ELF, or 32 bits
        return content[:4] == b"\x7fELF" and content[4:5] == b"\x01"
    (offset,) = struct.unpack_from("Q", content, 40)  # of the section headers, which are the last of a library
    size, count = struct.unpack_from("HH", content, 58)
    return offset + size * count <= len(content)


def _run(*command: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command. All its processes are killed when its time is up."""
    pipe, limit = subprocess.PIPE, _limit()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            out, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            message = f"{command[0]} did not finish in {limit:g} s (RECURRA_COMPILE_SECONDS)"
            raise BrokenBuildError(message) from error
        except BaseException:  # an interrupt would leave the compiler behind
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, out, errors


def _limit() -> float:
    """Seconds that a compiler may take."""
    try:
        limit = float(os.environ.get("RECURRA_COMPILE_SECONDS", SECONDS))
    except ValueError:
        return SECONDS
    return limit if limit > 0 else SECONDS
