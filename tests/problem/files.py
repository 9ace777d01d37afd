"""Small data files for tests."""

import csv
import json
from pathlib import Path

import numpy as np


def write_rows(path: Path, names: list[str], rows: list[list]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
    return path


def recordings(path: Path, count: int = 20, target: str = "activity") -> Path:
    """Sequences with two features per step, id `recording` and one of two classes."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(count):
        for t in range(5 + k % 4):
            label = ("walk", "run")[k % 2]
            rows.append([f"r{k}", t, round(float((k % 2) - 0.5 + 0.1 * rng.normal()), 4), float(t), label])
    return write_rows(path, ["recording", "t", "ax", "ay", target], rows)


def amounts(path: Path, count: int = 20) -> Path:
    """Sequences with one numeric target each."""
    rng = np.random.default_rng(1)
    rows = []
    for k in range(count):
        a = float(rng.normal())
        rows += [[k, round(a + 0.1 * float(rng.normal()), 4), round(2 * a, 4)] for _ in range(4)]
    return write_rows(path, ["id", "x", "amount"], rows)


def shops(path: Path, days: int = 60) -> Path:
    """Two daily series with a weekly season, and a price known in advance."""
    start, noise = np.datetime64("2024-01-01"), np.random.default_rng(2).normal(size=(2, days))
    rows = [
        [
            shop,
            str(start + day),
            round(1 + 0.1 * (day % 5), 2),
            round(float(10 + 3 * np.sin(day * 2 * np.pi / 7) + noise[base, day]), 4),
        ]
        for base, shop in enumerate(("north", "south"))
        for day in range(days)
    ]
    return write_rows(path, ["shop", "date", "price", "sold"], rows)


def numbers_in_words(path: Path) -> Path:
    """Pairs of texts, tab-separated: 90 numbers in words and in digits."""
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    pairs = [f"{names[a]} {names[b]}\t{a}{b}" for a in range(1, 10) for b in range(10)]
    path.write_text("\n".join(["words\tdigits", *pairs]) + "\n", encoding="utf-8")
    return path


def sentences(path: Path, count: int = 20) -> Path:
    """Tagged sentences in CoNLL format."""
    two = "the D\ncat N\nsat V\n\n", "a D\ndog N\nran V\nfast A\n\n"
    path.write_text("".join(two[k % 2] for k in range(count)), encoding="utf-8")
    return path


def poem(path: Path, lines: int = 30) -> Path:
    path.write_text("the cat sat on the mat\n" * lines, encoding="utf-8")
    return path


def json_lines(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path
