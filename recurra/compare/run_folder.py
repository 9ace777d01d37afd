"""The run folder, and who does what of a run that this machine does alone.

    runs/compare-vowels-1a2b3c4d/
      config.json         the rules
      rows/               a file for every cell and seed that is finished
      fits/               checkpoints of long fits under way
      models/             the best seed of every cell
      leaderboard.json, report.html

Every file is written beside its place and renamed into it: whatever ends the process, a file is whole or absent.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from recurra.compare.plan import Entrant, Rules
from recurra.compare.run_errors import RunFolderError
from recurra.file_lock import exclusive_lock

Row = dict[str, Any]


def write_json(path: Path, content: Any) -> None:
    """Beside, to the disk, and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(str(path), f"a damaged file ({error})", "JSON; remove it and run again") from error


class Folder:
    """Where the files of a run lie."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def row(self, entrant: Entrant) -> Path:
        return self.path / "rows" / f"{entrant.key}.json"

    def fit(self, entrant: Entrant) -> Path:
        return self.path / "fits" / entrant.key

    def candidate(self, entrant: Entrant) -> Path:
        """The model of one seed, until it is known which seed is the best."""
        return self.path / "models" / f"{entrant.name}-{entrant.seed}"

    def model(self, name: str) -> Path:
        return self.path / "models" / name

    def begin(self, rules: Rules, fresh: bool = False) -> None:
        """Make the folder, or find it with the same rules in it."""
        config, wanted = self.path / "config.json", rules.to_json()
        if fresh and config.exists():
            for name in ("rows", "fits", "models"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            for name in ("leaderboard.json", "report.html", "config.json"):
                (self.path / name).unlink(missing_ok=True)
        if not config.exists():
            if self.path.is_dir() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
                raise RunFolderError("folder", f"{self.path}, which holds other files", "an empty or a new folder")
            write_json(config, wanted)
            return
        there = read_json(config)
        differing = [key for key in wanted if there.get(key) != wanted[key]] if isinstance(there, dict) else ["config"]
        if differing:
            key = differing[0]
            was = there.get(key) if isinstance(there, dict) else there
            got = f"{self.path}, a run with {key} {was!r}"
            raise RunFolderError("folder", got, f"{key} {wanted.get(key)!r}; take another folder, or start it afresh")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time leads a run in this folder; the system lets go of the lock when the process ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(exclusive_lock(self.path / ".lock", wait=False))
            except BlockingIOError:
                got = f"{self.path}, where a comparison is running"
                raise RunFolderError("folder", got, "to wait for it, or another folder") from None
            yield

    @contextmanager
    def claimed(self, entrant: Entrant) -> Iterator[None]:
        """Wait for a worker of a run that was killed to let go of this fit."""
        path = self.path / "fits" / f".{entrant.key}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(path):
            yield


class Ledger:
    """What is done and what is still to do, where one machine does it all."""

    def __init__(self, folder: Folder, wanted: Sequence[Entrant]):
        self.folder, self.wanted = folder, list(wanted)
        self.found: dict[Entrant, Row] = {e: read_json(folder.row(e)) for e in wanted if folder.row(e).exists()}
        self.waiting = [entrant for entrant in wanted if entrant not in self.found]

    def claim(self) -> Entrant | None:
        return self.waiting.pop(0) if self.waiting else None

    def finish(self, entrant: Entrant, row: Row) -> None:
        if not row.get("passing"):  # a process that died may live the next time
            write_json(self.folder.row(entrant), row)
        self.found[entrant] = row

    def release(self, entrant: Entrant) -> None:
        """It was not finished: somebody else may."""
        self.waiting.insert(0, entrant)

    def refresh(self) -> None:
        """Hear what others did: there are none."""

    def complete(self) -> bool:
        return len(self.found) == len(self.wanted)

    def rows(self) -> list[Row]:
        return [self.found[entrant] for entrant in self.wanted if entrant in self.found]
