"""A PostgreSQL server of the test's own, in a temporary folder, reached through a socket."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import PATIENCE


def programs() -> Path | None:
    """The folder of initdb and postgres; Debian does not put them on the path."""
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((place for place in reversed(places) if (place / "postgres").exists()), None)


def install() -> None:
    """With apt and the right to use it; elsewhere the test is skipped by name."""
    if programs() is None and shutil.which("apt-get") and os.geteuid() == 0:
        command = ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"]
        subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True)


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Start a server and give its URL. As root it runs as the user postgres, which refuses to be root."""
    install()
    place = programs()
    if place is None:
        pytest.skip("no PostgreSQL server, and no apt to install one")
    folder.mkdir(mode=0o700)
    prefix = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        prefix = ["runuser", "-u", "postgres", "--"]
    data = str(folder / "data")
    initdb = [*prefix, str(place / "initdb"), "-D", data, "-A", "trust", "-U", "recurra", "--no-sync"]
    subprocess.run(initdb, check=True, capture_output=True, cwd="/")
    options = ["-D", data, "-k", str(folder), "-c", "listen_addresses=", "-c", "fsync=off"]
    process = subprocess.Popen([*prefix, str(place / "postgres"), *options], cwd="/", stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE
        while not (folder / ".s.PGSQL.5432").exists():
            assert process.poll() is None, "the server ended"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)
        yield f"postgresql://recurra@/postgres?host={folder}"
    finally:
        process.terminate()  # runuser passes it on
        process.wait(PATIENCE)
