"""The data sets that tests read: their sources, licences and SHA-256 hashes (data/sources.toml).

python tests/data_sources.py                            # list the data sets and where to get them
python tests/data_sources.py --check ../shared/data     # compare a folder with the list; exit code 1 on a difference
"""

import argparse
import hashlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).parent / "data" / "sources.toml"


def sources() -> dict[str, dict[str, Any]]:
    """By folder: `source`, `licence` and `files`, a hash for each path below the folder."""
    return tomllib.loads(SOURCES.read_text(encoding="utf-8"))


def files() -> dict[str, str]:
    """Path below the data folder → SHA-256."""
    return {f"{name}/{path}": digest for name, about in sources().items() for path, digest in about["files"].items()}


def differences(folder: Path) -> Iterator[str]:
    """A line for each listed file that is missing from the folder or has other contents."""
    for path, digest in files().items():
        if not (folder / path).is_file():
            yield f"{path}: missing"
        elif hashlib.sha256((folder / path).read_bytes()).hexdigest() != digest:
            yield f"{path}: got other contents than the listed SHA-256"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="the folder that holds the data sets")
    folder = parser.parse_args(arguments).check
    if folder is None:
        for name, about in sources().items():
            print(f"{name}: {len(about['files'])} files; {about['source']}; {about['licence']}")
        return 0
    found = list(differences(folder))
    print("\n".join(found) or f"{len(files())} files are as listed.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
