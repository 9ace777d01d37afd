"""Classify recordings of several channels: what it reads, how sure it is, and where it errs.

    python examples/classify_sensors.py                              # nine speakers by twelve channels of their speech
    python examples/classify_sensors.py sensors.csv --target label --id recording

First the default classifier, which reads out random recurrent networks in seconds; then a trained network of a cell.
The first one is saved to a folder and loaded again.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import recurra as rc


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default="japanese_vowels", help="a table with one row a time step")
    parser.add_argument("--target", help="the column to predict")
    parser.add_argument("--id", help="the column that tells recordings apart")
    parser.add_argument("--cell", default="gru")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--folder", type=Path, help="where to save the model")
    chosen = parser.parse_args()

    problem = rc.infer_problem(chosen.file, task="classify", target=chosen.target, id=chosen.id)
    (X, y), (X_test, y_test) = problem.train, problem.test or problem.train
    for name, said in problem.summary:
        print(f"{name:10} {said}")

    models = {
        "random recurrent features": rc.SequenceClassifier(random_state=0),
        f"trained {chosen.cell}": rc.SequenceClassifier(chosen.cell, epochs=chosen.epochs, random_state=0),
    }
    for name, model in models.items():
        print(f"{name:26} {model.fit(X, y).score(X_test, y_test):.1%} of {len(X_test)} test recordings")

    model = models["random recurrent features"]
    answers, sure = model.predict(X_test), model.predict_proba(X_test).max(1)
    wrong = np.flatnonzero(answers != np.asarray(y_test))
    confused = Counter((str(y_test[k]), str(answers[k])) for k in wrong)
    print(f"The first: surest of {sure.max():.0%}, least sure of {sure.min():.0%}; most often confused:")
    for (truth, answer), count in confused.most_common(3):
        print(f"  {truth} taken for {answer}: {count} times")

    folder = chosen.folder or Path(tempfile.mkdtemp()) / "model"
    model.save(folder)
    assert (rc.load(folder).predict(X_test) == answers).all()
    print(f"Saved in {folder} and loaded again: the same answers.")


if __name__ == "__main__":
    main()
