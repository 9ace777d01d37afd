"""Fuzzing: random cells, mutated files and kill points, for as long as it is told.

    python scripts/fuzz.py --seconds 300                  # everything, from a seed that it prints
    python scripts/fuzz.py --only odd --seed 17 --count 1  # one cell again

- `cells`: random equations in random layers, compiled and on the plain loop (tests/engine/random_cases.py);
- `odd`: steps with autograd Functions, draws, effects, branches and containers, against a loop over `step` written
  out in tests/fuzzing/odd_cases.py;
- `files`: data files and saved models with changed bytes: data, or an error of recurra, in little memory and time;
- `kills`: training and saving processes that are killed and started again.

Exits with 1 if something failed, and prints the seed, the source and what differs.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
from engine.random_cases import Outcome, run  # noqa: E402
from fuzzing import kill_points, mutated_files, odd_cases  # noqa: E402

SHARES = {"cells": 4, "odd": 5, "files": 5, "kills": 1}  # of every fifteen trials


def check_cell(seed: int) -> str:
    """Two layers of a random cell; what is wrong, or nothing."""
    outcome = Outcome()
    run(seed, 2, "cpu", outcome)
    return "\n\n".join(map(str, outcome.failures))


CHECKS: dict[str, Callable[[int], str]] = {
    "cells": check_cell,
    "odd": odd_cases.check,
    "files": mutated_files.check,
    "kills": kill_points.check,
}


def fuzz(kinds: list[str], first: int, seconds: float, count: int | None) -> int:
    """Run trials in turn until the time or the count is over, one of each kind at least. Returns the failures."""
    end = time.monotonic() + seconds
    turns = [kind for turn in range(max(SHARES.values())) for kind in kinds if turn < SHARES[kind]]
    done, failures = Counter(), 0
    while (time.monotonic() < end or done.total() < len(kinds)) and (count is None or done.total() < count):
        kind = turns[done.total() % len(turns)]
        seed = first + done[kind]
        wrong = CHECKS[kind](seed)
        done[kind] += 1
        if wrong:
            failures += 1
            print(f"FAILED {kind}, seed {seed}\n{wrong}\n", flush=True)
    mutated_files.remove_originals()
    trials = ", ".join(f"{number} {kind}" for kind, number in sorted(done.items()))
    print(f"{trials} from seed {first} on: {failures} failures", flush=True)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long (default 300)")
    parser.add_argument("--seed", type=int, help="the first seed; by default another one every time")
    parser.add_argument("--count", type=int, help="at most so many trials")
    parser.add_argument("--only", choices=CHECKS, action="append", help="a kind of trial; may be given several times")
    given = parser.parse_args()
    torch.set_num_threads(1)
    first = int.from_bytes(os.urandom(4), "little") if given.seed is None else given.seed
    print(f"seeds from {first} on", flush=True)
    sys.exit(bool(fuzz(given.only or list(CHECKS), first, given.seconds, given.count)))


if __name__ == "__main__":
    main()
