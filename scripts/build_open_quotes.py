"""Write the built-in data set `open_quotes` from Python sources.

    python scripts/build_open_quotes.py COMMIT

reads the package's own files at COMMIT with git, cuts lines of code with a quotation mark at a random place, and writes
recurra/data/builtin/open_quotes.tsv.gz: split, label (1: the place is inside a string), beginning of the line. A file
is either for training or for testing. Places inside and outside strings are equally frequent; a line is used once.
"""

import gzip
import io
import random
import subprocess
import sys
import tokenize
from pathlib import Path

TARGET = Path(__file__).parents[1] / "recurra" / "data" / "builtin" / "open_quotes.tsv.gz"
COUNTS = {"train": 1500, "test": 1000}
SHORTEST = 12  # characters of a line
SEED = 0


def places_in_strings(text: str) -> list[bool]:
    """For every place before a character whether it is between two quotation marks, by Python's own tokenizer."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    inside = [False] * (len(text) + 1)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING:
            prefix = min(k for k in map(token.string.find, "\"'") if k >= 0)  # r, b, f
            first = starts[token.start[0] - 1] + token.start[1] + prefix + 1
            last = starts[token.end[0] - 1] + token.end[1]
            inside[first:last] = [True] * (last - first)
    return inside


def cut_lines(text: str, rng: random.Random) -> list[tuple[int, str]]:
    """(label, beginning) of lines with a quotation mark; lines with comments or strings over several lines are left."""
    found, position, inside = [], 0, places_in_strings(text)
    for line in text.splitlines(keepends=True):
        body, places = line.rstrip("\n"), inside[position : position + len(line) + 1]
        position += len(line)
        indent = len(body) - len(body.lstrip())
        first = min((k for k in map(body.find, "\"'") if k >= 0), default=-1)
        if first < 0 or len(body) - indent < SHORTEST or not body.isascii() or '"""' in body or "#" in body:
            continue
        if places[indent] or places[len(body)]:
            continue
        within = rng.random() < 0.5
        chosen = [k for k in range(first + 2, len(body)) if places[k] == within]
        if chosen:
            found.append((int(within), body[indent : rng.choice(chosen)]))
    return found


def main(commit: str) -> None:
    listed = subprocess.run(["git", "ls-tree", "-r", "--name-only", commit, "recurra"], capture_output=True, check=True)
    files = sorted(name for name in listed.stdout.decode().splitlines() if name.endswith(".py"))
    rng = random.Random(SEED)
    rng.shuffle(files)
    cut = round(len(files) * COUNTS["train"] / sum(COUNTS.values()))
    rows: list[str] = []
    seen: set[tuple[int, str]] = set()
    for split, names in (("train", files[:cut]), ("test", files[cut:])):
        texts = [subprocess.run(["git", "show", f"{commit}:{name}"], capture_output=True, check=True) for name in names]
        lines = dict.fromkeys(line for text in texts for line in cut_lines(text.stdout.decode(), rng))
        chosen = [line for line in lines if line not in seen]
        rng.shuffle(chosen)
        seen |= lines.keys()
        rows += [f"{split}\t{label}\t{text}" for label, text in chosen[: COUNTS[split]]]
    content = "\n".join(rows).encode() + b"\n"
    TARGET.write_bytes(gzip.compress(content, mtime=0))
    print(f"{TARGET}: {len(rows)} lines, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
