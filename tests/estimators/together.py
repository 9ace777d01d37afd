"""Every estimator, fitted by one process or by those of a launcher: `torchrun together.py FOLDER`."""

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recurra as rc
from recurra.tensor_files import save_tensors, write_json

WORDS = ["Ada", "lives", "in", "Paris", "Alan", "works", "near", "London"]
TAGS = {"Ada": "B-PER", "Alan": "B-PER", "Paris": "B-LOC", "London": "B-LOC"}


def fitted(random_state: Any = 0) -> dict[str, Any]:
    """Every kind once: batches that do not divide evenly, validation, early stopping, calibration."""
    random = np.random.default_rng(0)
    series = [random.normal(size=(n, 2)).cumsum(0) for n in random.integers(4, 12, 23)]
    labels = [("up" if x[-1, 0] > 0 else "down") for x in series]
    numbers = np.array([[x[:, 0].mean(), x[-1, 1]] for x in series])
    chaos = list(itertools.accumulate(range(199), lambda x, _: 3.9 * x * (1 - x), initial=0.3))  # no line predicts it
    sentences = [random.choice(WORDS, n).tolist() for n in random.integers(2, 6, 17)]
    tags = [[TAGS.get(word, "O") for word in words] for words in sentences]
    shared = {"hidden_size": 5, "batch_size": 5, "random_state": random_state}
    early = {"validation": 0.3, "patience": 1, "lr": 0.3, "epochs": 6}  # the rate is so high that it stops early
    return {
        "classifier": rc.SequenceClassifier("gru", **shared, **early).fit(series, labels),
        "features": rc.SequenceClassifier(effort="quick", random_state=random_state).fit(series, labels),
        "mixed": rc.SequenceRegressor("gru", effort="quick", epochs=1, **shared).fit(series, numbers),
        "regressor": rc.SequenceRegressor("lstm", epochs=3, **shared).fit(series, numbers),
        "forecaster": rc.Forecaster("gru", horizon=1, season=25, epochs=8, lr=1e-2, **shared).fit(np.array(chaos)),
        "tagger": rc.SequenceTagger("gru", dropout=0.0, validation=0.2, epochs=2, **shared).fit(sentences, tags),
        "language": rc.LanguageModelEstimator("gru", chunk=9, validation=0.2, epochs=2, **shared).fit("ab ba " * 60),
        "translation": rc.SequenceToSequence("gru", embedding_size=4, validation=0.2, epochs=2, **shared).fit(
            [" ".join(words) for words in sentences], [" ".join(row) for row in tags]
        ),
    }


def write(estimators: dict[str, Any], folder: Path) -> None:
    """Everything that `save` would write, but for `random_state`."""
    folder.mkdir(parents=True)
    for name, estimator in estimators.items():
        contents = estimator.folder_contents()
        contents.config["options"].pop("random_state")
        write_json(folder / f"{name}.json", contents.config)
        save_tensors(folder / f"{name}.safetensors", dict(contents.tensors))


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rank = rc.train.distributed.Processes().rank
    write(fitted(), Path(sys.argv[1]) / f"seeded-{rank}")
    write(fitted(None), Path(sys.argv[1]) / f"unseeded-{rank}")
