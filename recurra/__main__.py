"""`python -m recurra` is the command `recurra`; in a clone, so is `python recurra`, as `torchrun recurra` starts it."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    if sys.path[0] and Path(sys.path[0]).resolve() == HERE:  # a script's folder: its `inspect` would hide Python's
        sys.path[0] = str(HERE.parent)
    from recurra.cli import main

    main()
