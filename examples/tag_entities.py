"""Find the names of people and places in sentences: a bidirectional LSTM with a conditional random field on top.

    python examples/tag_entities.py                                  # on sentences made from a few patterns
    python examples/tag_entities.py train.conll test.conll           # on your files, one word and its tag a line

The names in the made-up sentences are new in every sentence, so a list of names is of no use: the tagger reads the
words around a name, in both directions, and the spelling of every word.
"""

import argparse
import random
from pathlib import Path

import recurra as rc

SYLLABLES = ["ba", "ri", "lo", "ne", "ta", "mir", "sen", "dal", "ko", "vi", "an", "gor", "el", "su", "pha", "lin"]
PATTERNS = (
    "PERSON lives in PLACE .",
    "Last year PERSON moved from PLACE to PLACE .",
    "PERSON met PERSON near the old bridge of PLACE .",
    "The train to PLACE was late , said PERSON .",
    "It rained in PLACE all week .",
    "PERSON wrote a long letter to PERSON .",
)
Sentences = tuple[list[list[str]], list[list[str]]]


def made_up(count: int, seed: int) -> Sentences:
    """Sentences as lists of words, and the tags of their words. Every name is new."""
    draw, words, tags = random.Random(seed), [], []
    names = {"PERSON": "B-PER", "PLACE": "B-LOC"}
    for _ in range(count):
        pattern = draw.choice(PATTERNS).split()
        words.append(["".join(draw.choices(SYLLABLES, k=3)).capitalize() if w in names else w for w in pattern])
        tags.append([names.get(word, "O") for word in pattern])
    return words, tags


def from_file(path: Path) -> Sentences:
    problem = rc.infer_problem(path, task="tag", test=0.0)
    return problem.train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="a file to train on and a file to test on")
    parser.add_argument("--epochs", type=int, default=8)
    chosen = parser.parse_args()
    if chosen.files:
        (X, y), (X_test, y_test) = map(from_file, chosen.files)
    else:
        (X, y), (X_test, y_test) = made_up(400, seed=0), made_up(100, seed=1)

    model = rc.SequenceTagger("lstm", hidden_size=32, epochs=chosen.epochs, random_state=0, verbose=True).fit(X, y)
    print(f"F1 of entities: {model.score(X_test, y_test):.3f} on {len(X_test)} sentences")
    for words, found in zip(X_test[:3], model.predict(X_test[:3]), strict=True):
        print(" ".join(word if tag == "O" else f"[{word} {tag[2:]}]" for word, tag in zip(words, found, strict=True)))


if __name__ == "__main__":
    main()
