"""The run folder, and the work queue of a run on one machine.

    runs/compare-vowels-1a2b3c4d/
      config.json         the configuration
      rows/               one result file per cell and seed
      fits/               checkpoints of long fits in progress
      models/             the best seed of every cell
      leaderboard.json, report.html

Every file is written under a temporary name and renamed: after a crash a file is complete or absent.
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from recurra.compare.plan import RunConfig, WorkItem
from recurra.compare.run_errors import RunFolderError
from recurra.file_lock import exclusive_lock

Row = dict[str, Any]


def write_json(path: Path, content: Any) -> None:
    """Write atomically: temporary file, fsync, rename."""
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


class RunFolder:
    """Paths and locks of a run folder."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def row_path(self, item: WorkItem) -> Path:
        return self.path / "rows" / f"{item.key}.json"

    def fit_path(self, item: WorkItem) -> Path:
        """Folder of a fit in progress; removed when the fit ends."""
        return self.path / "fits" / item.key

    def seed_model_path(self, item: WorkItem) -> Path:
        """The model of one seed, kept until the best seed is known."""
        return self.path / "models" / f"{item.name}-{item.seed}"

    def model_path(self, name: str) -> Path:
        return self.path / "models" / name

    def prepare(self, config: RunConfig, fresh: bool = False) -> None:
        """Create the folder, or check that it holds a run with the same configuration; `fresh` empties it first."""
        file, wanted = self.path / "config.json", config.to_json()
        if fresh and file.exists():
            for name in ("rows", "fits", "models"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            for name in ("leaderboard.json", "report.html", "config.json"):
                (self.path / name).unlink(missing_ok=True)
        if not file.exists():
            if self.path.is_dir() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
                raise RunFolderError("folder", f"{self.path}, which contains other files", "an empty or new folder")
            write_json(file, wanted)
            return
        saved = read_json(file)
        differing = [key for key in wanted if saved.get(key) != wanted[key]] if isinstance(saved, dict) else ["config"]
        if differing:
            key = differing[0]
            was = saved.get(key) if isinstance(saved, dict) else saved
            got = f"{self.path}, a run with {key} {was!r}"
            expected = f"{key} {wanted.get(key)!r}; choose another folder with folder=, or overwrite it with fresh=True"
            raise RunFolderError("folder", got, expected)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process at a time controls a run; the system releases the lock when the process ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(exclusive_lock(self.path / ".lock", wait=False))
            except BlockingIOError:
                got = f"{self.path}, where another comparison is running"
                raise RunFolderError("folder", got, "a free folder; choose another with folder=, or wait") from None
            yield

    @contextmanager
    def lock_item(self, item: WorkItem) -> Iterator[None]:
        """Waits for an orphaned worker of a killed run that still works on this item."""
        path = self.path / "fits" / f".{item.key}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(path):
            yield


class WorkQueue:
    """Finished and pending items of a run on one machine. Results of an earlier run count as finished."""

    def __init__(self, folder: RunFolder, items: Sequence[WorkItem]):
        self.folder, self.items = folder, list(items)
        paths = {item: folder.row_path(item) for item in items}
        self.results: dict[WorkItem, Row] = {item: read_json(path) for item, path in paths.items() if path.exists()}
        self.pending = [item for item in items if item not in self.results]

    def claim(self) -> WorkItem | None:
        return self.pending.pop(0) if self.pending else None

    def finish(self, item: WorkItem, row: Row) -> None:
        if not row.get("transient"):  # a worker that died may succeed in the next run
            write_json(self.folder.row_path(item), row)
        self.results[item] = row

    def release(self, item: WorkItem) -> None:
        """Put back an item that was not finished."""
        self.pending.insert(0, item)

    def refresh(self) -> None:
        """Read the results of other machines; there are none."""

    def is_complete(self) -> bool:
        return len(self.results) == len(self.items)

    def rows(self) -> list[Row]:
        return [self.results[item] for item in self.items if item in self.results]
