"""Dates written out in twelve languages to ISO 8601, by an encoder–decoder with and without attention.

    python -m benchmarks.dates            all three, about ten minutes on one core
    python -m benchmarks.dates additive   one of them

The texts come from the Unicode locale files in the package Babel: "mardi 18 novembre 2026" → "2026-11-18", in the full,
long and medium format of every language. Days from 1950 to 2049 are split before they are written out, so that no test
day was seen in any language. Settings were set once, without a search; the test days are scored once. The result
is the share of texts whose ten characters are all right. Writes results/dates.json and results/dates.md.
"""

import datetime
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from babel.dates import format_date

import recurra as rc
from benchmarks.environment import environment

RESULTS = Path(__file__).resolve().parent / "results"
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "pl", "tr", "fi", "el")
FORMATS = ("full", "long", "medium")
FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
TRAIN, TEST = 12000, 3000  # texts
ATTENTIONS = {"none": None, "dot": "dot", "additive": "additive"}


def texts(days: np.ndarray, count: int, seed: int) -> tuple[list[str], list[str]]:
    """`count` days of these, each in one language and format, and their ISO form."""
    random = np.random.default_rng(seed)
    found = []
    for day in random.choice(days, count, replace=False):
        date = FIRST + datetime.timedelta(int(day))
        language, style = str(random.choice(LANGUAGES)), str(random.choice(FORMATS))
        found.append((format_date(date, style, locale=language), date.isoformat()))
    return [text for text, _ in found], [iso for _, iso in found]


def data(seed: int = 0) -> tuple[tuple[list[str], list[str]], tuple[list[str], list[str]]]:
    """Training and test texts of different days."""
    days = np.random.default_rng(seed).permutation((LAST - FIRST).days + 1)
    return texts(days[:28000], TRAIN, seed + 1), texts(days[28000:], TEST, seed + 2)


def measure(attention: str, epochs: int = 12) -> dict[str, object]:
    """Train one model and score the test texts."""
    torch.set_num_threads(1)
    (X, y), (unseen, answers) = data()
    settings = {"hidden_size": 96, "embedding_size": 32, "batch_size": 64, "lr": 4e-3, "random_state": 0}
    model = rc.SequenceToSequence("gru", attention=ATTENTIONS[attention], epochs=epochs, **settings)
    began = time.perf_counter()
    model.fit(X, y)
    seconds = time.perf_counter() - began
    found = model.predict(unseen)
    right = [a == b for a, b in zip(found, answers, strict=True)]
    examples = [[x, f, a] for x, f, a, ok in zip(unseen, found, answers, right, strict=True) if not ok][:5]
    return {
        "attention": attention,
        "accuracy": float(np.mean(right)),
        "texts": {"train": len(X), "test": len(unseen)},
        "weights": sum(p.numel() for p in model.model_.parameters()),
        "epochs": epochs,
        "seconds": round(seconds, 1),
        "mistakes": examples,
    }


def write(found: dict[str, dict[str, object]]) -> None:
    """The JSON of all models measured so far, and a table."""
    command = "python -m benchmarks.dates"
    content = {"command": command, "environment": environment("babel"), "models": found}
    (RESULTS / "dates.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = ["# Dates in words to ISO 8601", "", f"`{command}`: {TRAIN:,} training and {TEST:,} test texts in", ""]
    lines[2] += (
        f" {len(LANGUAGES)} languages; test days were never seen. GRU, 96 units, the encoder in both directions."
    )
    lines += ["| attention | exactly right | weights | epochs | training |", "|---|---|---|---|---|"]
    for name, one in found.items():
        share = f"{100 * float(str(one['accuracy'])):.1f} %"
        lines.append(f"| {name} | {share} | {one['weights']:,} | {one['epochs']} | {one['seconds']} s |")
    (RESULTS / "dates.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    path = RESULTS / "dates.json"
    found = json.loads(path.read_text(encoding="utf-8"))["models"] if path.exists() else {}
    for name in sys.argv[1:] or ATTENTIONS:
        found[name] = measure(name)
        print(name, found[name]["accuracy"], found[name]["seconds"], flush=True)
        write({key: found[key] for key in ATTENTIONS if key in found})


if __name__ == "__main__":
    main()
