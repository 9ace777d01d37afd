"""Taggers on public corpora: CoNLL-2000 chunking and parts of speech of the English Web Treebank, no external vectors.

    python benchmarks/tagging.py chunking --seeds 0 1 2 [--output crf softmax] [--threads 2]
    python benchmarks/tagging.py chunking --pos
    python benchmarks/tagging.py parts-of-speech --epochs 5
    python benchmarks/tagging.py report

The tagger is `rc.SequenceTagger` as it comes; with `--pos`, which the estimator does not read, the same network and
training with the column of parts of speech that the CoNLL-2000 file has. The defaults were chosen on sentences held out
of the training file of CoNLL-2000. The last weights are tested once: no test sentence is looked at before.
Runs are kept in results/tagging.json, one for each setting and seed; `report` writes them as a table.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from environment import environment  # pyrefly: ignore

import recurra as rc
from recurra.data import Batches, read_conll, read_conllu
from recurra.models import Tagger, accuracy, entity_scores
from recurra.train.fit_context import fit_context

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
RESULTS = Path(__file__).parent / "results"

Texts = list[list[str]]
Tag = Callable[[Texts, dict[str, Texts]], Texts]  # sentences and their columns → tags


def texts(sequences: rc.data.SequenceSet) -> tuple[Texts, Texts]:
    """Words and tags as they are written."""
    assert sequences.texts is not None
    tags = [[sequences.classes[k] for k in example.target.tolist()] for example in sequences]
    return [list(sentence) for sentence in sequences.texts], tags


def chunking(part: str) -> tuple[Texts, Texts, dict[str, Texts]]:
    path = DATA / "conll2000" / f"{part}.txt"
    words, tags = texts(read_conll(path, tag=2))
    return words, tags, {"pos": texts(read_conll(path, tag=1))[1]}


def treebank(part: str) -> tuple[Texts, Texts, dict[str, Texts]]:
    return *texts(read_conllu(DATA / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu.gz")), {}


CORPORA = {"chunking": chunking, "parts-of-speech": treebank}


def run(task: str, output: str, seed: int, pos: bool, epochs: int) -> dict[str, Any]:
    """Train one tagger and test it once."""
    began, busy = time.perf_counter(), time.process_time()
    words, tags, columns = CORPORA[task]("train")
    columns = columns if pos else {}
    if pos:
        tag = train_with_columns(words, tags, columns, output, seed, epochs)
    else:
        tag = train_estimator(words, tags, output, seed, epochs)
    trained, trained_busy = time.perf_counter() - began, time.process_time() - busy
    words, truth, columns = CORPORA[task]("test")
    found = tag(words, columns)
    row = {
        "task": task,
        "features": "words, characters, forms" + (", POS" if pos else ""),
        "output": output,
        "seed": seed,
    }
    row |= {"accuracy": round(100 * accuracy(truth, found), 2)}
    if task == "chunking":
        scores = entity_scores(truth, found)
        row |= {name: round(100 * getattr(scores, name), 2) for name in ("precision", "recall", "f1")}
        print(scores)
    row |= {"epochs": epochs, "seconds": round(trained), "cpu_seconds": round(trained_busy)}
    return row | {"threads": torch.get_num_threads(), "environment": environment()}


def train_estimator(words: Texts, tags: Texts, output: str, seed: int, epochs: int) -> Tag:
    """The estimator with its defaults."""
    with fit_context(callbacks=[_say]):
        model = rc.SequenceTagger(output=output, epochs=epochs, random_state=seed).fit(words, tags)
    return lambda sentences, _: model.predict(sentences)


def train_with_columns(
    words: Texts, tags: Texts, columns: dict[str, Texts], output: str, seed: int, epochs: int
) -> Tag:
    """The same network and training with further columns."""
    defaults = rc.SequenceTagger().get_params()
    torch.manual_seed(seed)
    tagger = Tagger.of(words, tags, columns, output=output)
    rc.train.fit(
        tagger,
        Batches(tagger.encode(words, tags, columns), defaults["batch_size"], seed=seed),
        loss=tagger.objective(),
        optimizer=defaults["optimizer"],
        lr=defaults["lr"],
        schedule=rc.train.cosine(),
        epochs=epochs,
        clip=defaults["clip"],
        callbacks=[_say],
    )
    return tagger.tag


def _say(event: str, run: Any, /) -> None:
    if event == "epoch":
        record = run.progress.history[-1]
        print(f"epoch {record['epoch'] + 1}: {record['loss']:.4f} nats a word", flush=True)


def keep(row: dict[str, Any]) -> None:
    """Put a run into the file, in place of an earlier one of the same setting, epochs and seed."""
    path = RESULTS / "tagging.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    names = ("task", "features", "output", "epochs", "seed")
    rows = [other for other in rows if any(other[name] != row[name] for name in names)] + [row]
    rows.sort(key=lambda each: [f"{each[name]:>4}" for name in names])
    path.write_text(json.dumps(rows, indent=1) + "\n")
    report()


def report() -> None:
    rows = json.loads((RESULTS / "tagging.json").read_text())
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["features"], row["output"], str(row["epochs"])), []).append(row)
    lines = [
        "# Taggers",
        "",
        "CoNLL-2000 chunking by entity F1, parts of speech of the English Web Treebank by accuracy, in %; test sets,",
        "no external vectors. `python benchmarks/tagging.py chunking --seeds 0 1 2` and the like: see the head of the",
        "script. POS is the column of parts of speech that the CoNLL-2000 file has. The rows of words + char-CNN were",
        "measured before taggers read the form of words, with an earlier version of the script. Spread is the standard",
        "deviation over seeds. Minutes are of one run: reading, compiling, training, on a machine with other work to",
        "do; CPU minutes are the processor time it took.",
        "",
        "| task | features | output | epochs | seeds | score | spread | each | minutes | CPU minutes | threads |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (task, features, output, epochs), runs in groups.items():
        values = [row.get("f1", row["accuracy"]) for row in runs]
        spread = f"{statistics.stdev(values):.2f}" if len(values) > 1 else "–"
        times = [f"{statistics.mean(row[name] for row in runs) / 60:.1f}" for name in ("seconds", "cpu_seconds")]
        each = " ".join(f"{value:.2f}" for value in values)
        threads = "/".join(sorted({str(row["threads"]) for row in runs}))
        cells = [task, features, output, epochs, len(values), f"{statistics.mean(values):.2f}", spread, each, *times]
        lines.append(f"| {' | '.join(map(str, cells))} | {threads} |")
    (RESULTS / "tagging.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="task", required=True)
    for name in CORPORA:
        command = commands.add_parser(name)
        command.add_argument("--output", nargs="+", default=["crf"], choices=("crf", "softmax", "hmm"))
        command.add_argument("--seeds", nargs="+", type=int, default=[0])
        command.add_argument("--pos", action="store_true", help="the column of parts of speech as a feature")
        command.add_argument("--threads", type=int, default=2)
        command.add_argument("--epochs", type=int, default=rc.SequenceTagger().epochs)
    commands.add_parser("report")
    options = parser.parse_args()
    if options.task == "report":
        return report()
    torch.set_num_threads(options.threads)
    for seed in options.seeds:
        for output in options.output:
            row = run(options.task, output, seed, options.pos, options.epochs)
            print(json.dumps(row), flush=True)
            keep(row)
    return None


if __name__ == "__main__":
    main()
