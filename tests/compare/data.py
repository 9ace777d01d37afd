"""Small data files for comparisons."""

from pathlib import Path

import numpy as np


def turns(path: Path, sequences: int = 24) -> Path:
    """A CSV of two classes, circles in either direction; a linear model of the values cannot separate them."""
    rng, lines = np.random.default_rng(0), ["unique_id,t,east,north,way"]
    for k in range(sequences):
        (way, sign), angle = (("left", 1.0) if k % 2 else ("right", -1.0)), rng.uniform(0, 6)
        for t in range(8 + k % 3):
            east, north = np.cos(angle + sign * t), np.sin(angle + sign * t)
            lines.append(f"s{k},{t},{east:.4f},{north:.4f},{way}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def waves(path: Path, steps: int = 96) -> Path:
    """Two series that repeat every 12 steps, with noise."""
    rng, lines = np.random.default_rng(1), ["unique_id,ds,y"]
    for name in ("a", "b"):
        lines += [f"{name},{t},{5 + np.sin(2 * np.pi * t / 12) + 0.1 * rng.normal():.4f}" for t in range(steps)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def tagged(path: Path) -> Path:
    """Sentences in which a word always has the same tag."""
    words = [("John", "B-PER"), ("saw", "O"), ("Paris", "B-LOC"), ("the", "O"), ("dog", "O")]
    rng = np.random.default_rng(2)
    sentences = ["\n".join(" ".join(words[k]) for k in rng.permutation(5)) for _ in range(20)]
    path.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    return path
