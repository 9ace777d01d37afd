"""Train here, run elsewhere: an ONNX file that needs neither torch nor recurra, for any batch and any length.

    python examples/onnx_elsewhere.py                                # trains, exports, runs the file in a new process

The second process imports NumPy and onnxruntime alone. The same file runs in onnxruntime for C, C++, C#, Java,
JavaScript and Rust; raw recordings go in, names of classes and probabilities come out, scaling included.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np


def train_and_export(folder: Path, epochs: int) -> None:
    """A classifier as an ONNX file, and recordings with the answers it gives here."""
    import recurra as rc

    (X, y), (X_test, _) = (rc.data.japanese_vowels(split) for split in ("train", "test"))
    model = rc.SequenceClassifier("gru", hidden_size=32, epochs=epochs, random_state=0).fit(X, y)
    model.export(folder / "speakers.onnx")
    for k, series in enumerate(X_test[:20]):
        np.save(folder / f"recording{k}.npy", series.numpy())
    np.save(folder / "probabilities.npy", model.predict_proba(X_test[:20]))


def run_elsewhere(folder: Path) -> None:
    """What a server does: load the file, feed arrays."""
    import onnxruntime

    session = onnxruntime.InferenceSession(folder / "speakers.onnx", providers=["CPUExecutionProvider"])
    print("inputs: ", *(f"{each.name} {each.shape}" for each in session.get_inputs()))
    print("outputs:", *(f"{each.name} {each.shape}" for each in session.get_outputs()))
    expected = np.load(folder / "probabilities.npy")  # (20, 9)
    worst = 0.0
    for k, row in enumerate(expected):
        series = np.load(folder / f"recording{k}.npy")  # (T, 12); T differs from recording to recording
        given = {"x": series[:, None], "lengths": np.array([len(series)])}  # time first: (T, 1, 12), (1,)
        (found,) = session.run(["probabilities"], given)
        worst = max(worst, float(np.abs(np.asarray(found)[0] - row).max()))
    assert worst < 1e-5, worst
    assert not {"torch", "recurra"} & set(sys.modules)
    print(f"{len(expected)} recordings, largest difference of a probability {worst:.1e}, without torch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        run_elsewhere(chosen.run)
        return
    with tempfile.TemporaryDirectory() as folder:
        train_and_export(Path(folder), chosen.epochs)
        subprocess.run([sys.executable, __file__, "--run", folder], check=True)


if __name__ == "__main__":
    main()
