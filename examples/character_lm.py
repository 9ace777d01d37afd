"""Train a language model of characters on a text and let it continue a prompt.

    python examples/character_lm.py                                  # on the source of Python's argparse module
    python examples/character_lm.py book.txt --prompt "It was" --save book-model

The text is cut into parallel streams; the state is carried from chunk to chunk, and gradients flow through one chunk
(truncated backpropagation through time). The last tenth of the text is held out and decides when to stop.
"""

import argparse
import math
from pathlib import Path

import recurra as rc


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", type=Path, default=Path(argparse.__file__), help="a text file")
    parser.add_argument("--cell", default="lstm", help="any name of `recurra cells`")
    parser.add_argument("--units", type=int, default=192)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--prompt", default="def ")
    parser.add_argument("--save", type=Path, help="a folder for the trained model")
    return parser.parse_args()


def main() -> None:
    chosen = arguments()
    text = chosen.text.read_text(encoding="utf-8")
    cut = len(text) * 9 // 10
    model = rc.LanguageModelEstimator(
        chosen.cell,
        hidden_size=chosen.units,
        epochs=chosen.epochs,
        batch_size=32,
        chunk=64,
        validation=0.1,
        random_state=0,
        verbose=True,
    )
    model.fit(text[:cut])

    bits = -model.score(text[cut:]) / math.log(2)
    print(f"{len(text):,} characters, {len(model.tokens_)} kinds; {bits:.2f} bits per character on the last tenth")
    print(model.generate(chosen.prompt, length=300, temperature=0.7, seed=0))
    if chosen.save:
        model.save(chosen.save)
        print(f"Saved. Continue with: recurra generate {chosen.save} {chosen.prompt!r}")


if __name__ == "__main__":
    main()
