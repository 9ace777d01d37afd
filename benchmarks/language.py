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
import platform
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recurra.data import Streams
from recurra.models.language import Characters, LanguageModel, NextToken
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
SMALL = Settings(hidden=192, epochs=3, dropout=0.0, input_dropout=0.0, rate=4e-3)


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


# ---------------------------------------------------------------------------------------------------- results


def store(results: Path, part: str, rows: list[dict[str, Any]]) -> None:
    """This part of language.json anew, the others as they were; and the page made from them."""
    path = results / "language.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    content[part] = {"machine": platform.machine(), "torch": torch.__version__, "rows": rows}
    path.write_text(json.dumps(content, indent=1) + "\n")
    (results / "language.md").write_text(page(content))


def page(content: dict[str, Any]) -> str:
    parts = ["# Language models", "", "Made by `benchmarks/language.py`; every number is in `language.json`.", ""]
    for part, make in (("shakespeare", _shakespeare_table), ("cells", _cells_table)):
        if part in content:
            parts += [*make(content[part]["rows"]), ""]
    return "\n".join(parts)


def _spread(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"


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
        "| cell | seed | weights | epochs | nats | bits | minutes | threads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {row['cell']} | {row['seed']} | {row['weights']:,} | {row['epochs']} | {row['nats']:.4f} | "
        f"{row['bits']:.4f} | {row['seconds'] / 60:.0f} | {row['threads']} |"
        for row in rows
    ]


def _cells_table(rows: list[dict[str, Any]]) -> list[str]:
    first = rows[0]
    lines = [
        "## Tiny Shakespeare, many cells",
        "",
        "`python benchmarks/language.py cells`",
        "",
        f"One layer of {first['hidden']} units, {first['epochs']} epochs, Adam {first['rate']}, otherwise as above, no "
        "dropout. The mean over seeds, ± their standard deviation. The settings were chosen once, for all cells: a "
        "table of how far each gets in a short training, not of the best each can do.",
        "",
        "| cell | weights | seeds | nats | bits | seconds |",
        "|---|---|---|---|---|---|",
    ]
    groups = {row["cell"]: [one for one in rows if one["cell"] == row["cell"]] for row in rows}
    for cell, runs in sorted(groups.items(), key=lambda item: statistics.mean(r["nats"] for r in item[1])):
        nats, bits = ([run[name] for run in runs] for name in ("nats", "bits"))
        seconds = statistics.mean(run["seconds"] for run in runs)
        lines.append(
            f"| {cell} | {runs[0]['weights']:,} | {len(runs)} | {_spread(nats)} | {_spread(bits)} | {seconds:.0f} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("shakespeare", "cells"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--hidden", type=int)
    asked = parser.parse_args()
    changes = {name: getattr(asked, name) for name in ("epochs", "hidden") if getattr(asked, name) is not None}
    base = replace(Settings() if asked.what == "shakespeare" else SMALL, **changes)
    rows = []
    for cell in ("lstm",) if asked.what == "shakespeare" else CELLS:
        for seed in range(asked.seeds):
            rows.append(shakespeare_run(replace(base, cell=cell, seed=seed), asked.data))
            print(rows[-1], flush=True)
            store(asked.results, asked.what, rows)


if __name__ == "__main__":
    main()
