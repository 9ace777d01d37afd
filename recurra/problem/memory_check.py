"""Whether a table fits into memory. Estimators hold all sequences; `rc.train.fit` reads a larger set in windows."""

from pathlib import Path

from recurra.data.data_errors import SizeError

BYTES_PER_NUMBER = 16  # float64 as it is read, float32 scaled, and the batches in work
MEMORY, GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
HOW = (
    "a set that fits into memory. A larger one trains in windows of constant memory, without an estimator: "
    "rc.train.fit(model, rc.data.Batches(rc.data.read(path, …), batch_size))"
)


def check_fits_in_memory(path: Path, rows: int, columns: int) -> None:
    """Raise `SizeError` for a table that, as arrays, is larger than the free memory. Nothing has been read by then."""
    needed, free = BYTES_PER_NUMBER * rows * columns, free_memory()
    if free is not None and needed > free:
        size = f"{rows:,} rows of {columns} columns, about {needed / 1e9:.1f} GB as arrays"
        raise SizeError(path, f"{size}, where {free / 1e9:.1f} GB are free", HOW)


def free_memory() -> int | None:
    """Bytes that this process may still take, by the system and by its control group; None if that is not known."""
    try:
        lines = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        free = 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return None
    try:
        limit, used = (int((GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
    except (OSError, ValueError):  # no such group, or no limit
        return free
    return min(free, max(0, limit - used))
