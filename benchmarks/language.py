"""Language models on real text.

    python benchmarks/language.py shakespeare --data ../shared/data --results benchmarks/results
    python benchmarks/language.py cells       --data ../shared/data --results benchmarks/results
    python benchmarks/language.py elmo        --data ../shared/data --results benchmarks/results

`shakespeare`: characters of Tiny Shakespeare with one LSTM layer; trained on the first 90 %, in nats a character on the
last 10 %, read as one text with the state carried on. `cells`: the same for many cells, smaller and shorter. `elmo`: an
ELMo pretrained on the words of the training sentences, and a chunker trained on 200 of them, with it and without. Every
run writes its part of language.json; language.md is made from the whole of it.
"""

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from environment import environment  # pyrefly: ignore
from torch import Tensor

from recurra.data import SequenceSet, Streams, read_conll
from recurra.models import ELMo, Pretraining
from recurra.models.language import Characters, LanguageModel, NextToken
from recurra.models.tagging import Tagger, entity_scores
from recurra.train import Run, cosine, evaluate, fit


@dataclass(frozen=True)
class Settings:
    """One run on Tiny Shakespeare."""

    cell: str = "lstm"
    hidden: int = 512
    embedding: int = 64
    epochs: int = 15
    dropout: float = 0.4
    input_dropout: float = 0.1
    rate: float = 2e-3
    batch: int = 32
    chunk: int = 100
    seed: int = 0


#: the cells compared, at a size and a length of training at which all of them can run
CELLS = ("lstm", "vanilla_lstm", "lstm_cifg", "gru", "mgu", "ugrnn", "janet", "rnn")
SMALL = Settings(hidden=64, epochs=1, dropout=0.0, input_dropout=0.0, rate=4e-3)


def shakespeare_text(data: Path) -> tuple[Characters, Tensor, Tensor]:
    """The vocabulary, the first 90 % and the last 10 %."""
    text = (data / "tiny_shakespeare" / "input.txt").read_text(encoding="utf-8")
    vocabulary = Characters.from_text(text)
    numbers = vocabulary.encode(text)
    cut = int(0.9 * len(numbers))
    return vocabulary, numbers[:cut], numbers[cut:]


def shakespeare_run(settings: Settings, data: Path) -> dict[str, Any]:
    """Train; the score is that of the last epoch, not of the best one."""
    vocabulary, train, test = shakespeare_text(data)
    torch.manual_seed(settings.seed)
    model = LanguageModel(
        vocabulary,
        settings.hidden,
        cell=settings.cell,
        embedding_size=settings.embedding,
        dropout=settings.dropout,
        input_dropout=settings.input_dropout,
    )
    begin = time.perf_counter()
    result = fit(
        model,
        Streams(train, settings.batch, settings.chunk),
        Streams(test, 16, 256),
        loss=NextToken(),
        lr=settings.rate,
        schedule=cosine(warmup=100),
        clip=1.0,
        epochs=settings.epochs,
        device="cpu",
        progress=False,
        callbacks=[_say],
    )
    seconds = time.perf_counter() - begin
    nats = evaluate(model, Streams(test, 1, 1024), loss=NextToken(), device="cpu")["loss"]
    return {
        **asdict(settings),
        "nats": nats,
        "bits": nats / math.log(2),
        "weights": sum(p.numel() for p in model.parameters()),
        "seconds": seconds,
        "threads": torch.get_num_threads(),
        "curve": [round(record["valid_loss"], 4) for record in result.history],
    }


def _say(event: str, run: Run) -> None:
    if event == "epoch":
        record = run.progress.history[-1]
        print({name: round(value, 4) for name, value in record.items()}, flush=True)


# ---------------------------------------------------------------------------------------------------- ELMo

Sentences = list[list[str]]


@dataclass(frozen=True)
class Modest:
    """An ELMo that trains in minutes on one core, and the tagger that uses it."""

    projection: int = 64
    hidden: int = 256
    layers: int = 2
    filters: tuple[tuple[int, int], ...] = ((1, 16), (2, 32), (3, 64), (4, 96))
    longest: int = 20
    predicted: int = 4000
    epochs: int = 3
    rate: float = 3e-3
    batch: int = 16
    chunk: int = 20
    labelled: int = 200
    tagger_epochs: int = 25
    tagger_rate: float = 3e-3


def tagged(part: SequenceSet) -> tuple[Sentences, Sentences]:
    """Words and tags as they are written."""
    words = [list(text) for text in part.texts or ()]
    return words, [[part.classes[k] for k in example.target.tolist()] for example in part]


def pretrained(settings: Modest, sentences: Sentences, held_out: Sentences, folder: Path) -> dict[str, Any]:
    """Train an ELMo on sentences, leave its two files in the folder, and tell how well it predicts."""
    torch.manual_seed(0)
    elmo = ELMo(
        settings.projection,
        settings.hidden,
        settings.layers,
        filters=settings.filters,
        longest=settings.longest,
        dropout=0.1,
    )
    task = Pretraining(elmo, sentences + held_out, size=settings.predicted)
    begin = time.perf_counter()
    result = fit(
        task.model,
        task.streams(sentences, settings.batch, settings.chunk),
        task.streams(held_out, settings.batch, settings.chunk, shuffle=False),
        loss=NextToken(),
        lr=settings.rate,
        schedule=cosine(warmup=100),
        clip=1.0,
        epochs=settings.epochs,
        device="cpu",
        progress=False,
        callbacks=[_say],
    )
    elmo.save_files(folder / "options.json", folder / "weights.hdf5")
    return {
        "sentences": len(sentences),
        "words": sum(map(len, sentences)),
        "weights": sum(p.numel() for p in elmo.parameters()),
        "perplexity": math.exp(result.history[-1]["valid_loss"]),
        "seconds": time.perf_counter() - begin,
        "curve": [round(record["valid_loss"], 4) for record in result.history],
    }


def chunker(settings: Modest, seed: int, train: Any, test: Any, folder: Path | None) -> dict[str, Any]:
    """A tagger trained on a few sentences, drawn with the seed; with the ELMo in the folder, or without one."""
    chosen = random.Random(seed).sample(range(len(train[0])), settings.labelled)
    words, tags = ([column[k] for k in chosen] for column in train)
    torch.manual_seed(seed)
    elmo = None if folder is None else ELMo.from_files(folder / "options.json", folder / "weights.hdf5").freeze()
    tagger = Tagger.of(words, tags, extra_inputs=elmo)
    begin = time.perf_counter()
    fit(
        tagger,
        tagger.encode(words, tags),
        loss=tagger.objective(),
        lr=settings.tagger_rate,
        schedule=cosine(warmup=20),
        clip=5.0,
        batch_size=10,
        epochs=settings.tagger_epochs,
        device="cpu",
        progress=False,
    )
    scores = entity_scores(test[1], tagger.tag(test[0]))
    row: dict[str, Any] = {
        "seed": seed,
        "elmo": elmo is not None,
        "f1": 100 * scores.f1,
        "accuracy": 100 * scores.accuracy,
    }
    if elmo is not None:
        row["mix"] = [round(value, 3) for value in elmo.mix.s.tolist()]
    return {**row, "seconds": time.perf_counter() - begin}


def elmo_run(settings: Modest, data: Path, seeds: int) -> Iterator[dict[str, Any]]:
    """Pretrain once, then pairs of taggers: the same sentences, the same seed, with and without."""
    train, test = (tagged(read_conll(data / "conll2000" / f"{name}.txt")) for name in ("train", "test"))
    with tempfile.TemporaryDirectory() as place:
        yield {**asdict(settings), **pretrained(settings, train[0][:-300], train[0][-300:], Path(place))}
        for seed in range(seeds):
            for folder in (None, Path(place)):
                yield chunker(settings, seed, train, test, folder)


def shakespeare_runs(base: Settings, cells: tuple[str, ...], data: Path, seeds: int) -> Iterator[dict[str, Any]]:
    for seed in range(seeds):
        for cell in cells:
            yield shakespeare_run(replace(base, cell=cell, seed=seed), data)


# ---------------------------------------------------------------------------------------------------- results


def store(results: Path, part: str, rows: list[dict[str, Any]]) -> None:
    """This part of language.json anew, the others as they were; and the page made from them."""
    path = results / "language.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    content[part] = {"environment": environment(), "rows": rows}
    path.write_text(json.dumps(content, indent=1) + "\n")
    (results / "language.md").write_text(page(content))


def page(content: dict[str, Any]) -> str:
    parts = ["# Language models", "", "Made by `benchmarks/language.py`; every number is in `language.json`.", ""]
    for part, make in (("shakespeare", _shakespeare_table), ("cells", _cells_table), ("elmo", _elmo_table)):
        if part in content:
            parts += [*make(content[part]["rows"]), ""]
    return "\n".join(parts)


def _spread(values: list[float], digits: int = 4) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def _shakespeare_table(rows: list[dict[str, Any]]) -> list[str]:
    first = rows[0]
    lines = [
        "## Tiny Shakespeare, one layer",
        "",
        "`python benchmarks/language.py shakespeare`",
        "",
        f"Characters; trained on the first 90 %, scored on the last 10 % as one text. {first['hidden']} units, batch "
        f"{first['batch']}, chunks of {first['chunk']} with the state carried on, Adam {first['rate']} with a cosine, "
        f"dropout {first['dropout']} before the softmax and {first['input_dropout']} on the embedding. Asked for: at "
        "most 1.48 nats.",
        "",
        "| cell | seed | weights | epochs | nats | bits | minutes by the clock | threads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['cell']} | {row['seed']} | {row['weights']:,} | {row['epochs']} | {row['nats']:.4f} | "
        f"{row['bits']:.4f} | {row['seconds'] / 60:.0f} | {row['threads']} |"
        for row in rows
    ]
    return [*lines, *(line for row in rows if "note" in row for line in ("", row["note"]))]


def _cells_table(rows: list[dict[str, Any]]) -> list[str]:
    first = rows[0]
    lines = [
        "## Tiny Shakespeare, many cells",
        "",
        f"`python benchmarks/language.py cells --seeds {1 + max(row['seed'] for row in rows)}`",
        "",
        f"One layer of {first['hidden']} units, passes through the text: {first['epochs']}, Adam {first['rate']}, "
        "otherwise as above, no dropout. The mean over seeds, ± their standard deviation. The settings were chosen "
        "once, for all cells: a table of how far each gets in a short training, not of the best each can do. A cell "
        "that does much better on the test text in 16 pieces than on it as one does not last over a text that long.",
        "",
        "| cell | weights | seeds | nats | bits | nats, in 16 pieces | seconds by the clock |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = {row["cell"]: [one for one in rows if one["cell"] == row["cell"]] for row in rows}
    for cell, runs in sorted(groups.items(), key=lambda item: statistics.mean(r["nats"] for r in item[1])):
        nats, bits = ([run[name] for run in runs] for name in ("nats", "bits"))
        pieces = [run["curve"][-1] for run in runs]
        seconds = statistics.mean(run["seconds"] for run in runs)
        scores = " | ".join(map(_spread, (nats, bits, pieces)))
        lines.append(f"| {cell} | {runs[0]['weights']:,} | {len(runs)} | {scores} | {seconds:.0f} |")
    return lines


def _elmo_table(rows: list[dict[str, Any]]) -> list[str]:
    model, runs = rows[0], rows[1:]
    pairs = {seed: {run["elmo"]: run for run in runs if run["seed"] == seed} for seed in {run["seed"] for run in runs}}
    gains = [pair[True]["f1"] - pair[False]["f1"] for pair in pairs.values() if len(pair) == 2]
    lines = [
        "## ELMo, pretrained, in a chunker with few labels",
        "",
        f"`python benchmarks/language.py elmo --seeds {len(pairs)}`",
        "",
        f"An ELMo of {model['weights']:,} weights ({model['layers']} layers of {model['hidden']} cells projected to "
        f"{model['projection']}, each direction), pretrained for {model['epochs']} epochs on the {model['words']:,} "
        f"words of {model['sentences']:,} training sentences of CoNLL-2000, without any label: perplexity "
        f"{model['perplexity']:.0f} on 300 more, where all but {model['predicted']:,} words count as one; "
        f"{model['seconds'] / 60:.0f} minutes by the clock on one thread of a busy machine. Then "
        f"chunkers (words, characters, BiLSTM, CRF), trained on {model['labelled']} labelled sentences of CoNLL-2000, "
        "drawn with the seed, the same for both; entity F1 on its whole test set. ELMo is frozen, its mix is learned.",
        "",
        "| input | seeds | F1 | accuracy of tags |",
        "|---|---|---|---|",
    ]
    for with_elmo in (False, True):
        chosen = [run for run in runs if run["elmo"] is with_elmo]
        if not chosen:
            continue
        f1, right = ([run[name] for run in chosen] for name in ("f1", "accuracy"))
        name = "words and characters, and ELMo" if with_elmo else "words and characters"
        lines.append(f"| {name} | {len(chosen)} | {_spread(f1, 2)} | {_spread(right, 2)} |")
    return [*lines, "", f"The gain, pair by pair: {_spread(gains, 2)} F1."] if gains else lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("shakespeare", "cells", "elmo"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--hidden", type=int)
    asked = parser.parse_args()
    changes = {name: getattr(asked, name) for name in ("epochs", "hidden") if getattr(asked, name) is not None}
    if asked.what == "elmo":
        runs = elmo_run(replace(Modest(), **changes), asked.data, asked.seeds)
    elif asked.what == "cells":
        runs = shakespeare_runs(replace(SMALL, **changes), CELLS, asked.data, asked.seeds)
    else:
        runs = shakespeare_runs(replace(Settings(), **changes), ("lstm",), asked.data, asked.seeds)
    rows: list[dict[str, Any]] = []
    for row in runs:
        rows.append(row)
        print(row, flush=True)
        store(asked.results, asked.what, rows)


if __name__ == "__main__":
    main()
