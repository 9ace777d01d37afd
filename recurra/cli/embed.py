"""`recurra embed MODEL DATA`: hidden states, one vector a sequence."""

import os
from pathlib import Path
from typing import Annotated

import typer

from recurra.cli.error_handling import writing
from recurra.cli.options import OUTPUT, Data, Json, Model


def embed(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help=".csv, .jsonl, .parquet, .npz.", rich_help_panel=OUTPUT),
    ] = None,
    pool: Annotated[str, typer.Option(help="The final hidden state, or the mean, or the max over steps.")] = "final",
    json: Json = False,
) -> None:
    """A vector for every sequence: what the recurrent layer knows at its end, or on average.

    For clustering, for search, or as features of another model.
    """
    from recurra.cli import embeddings, models, printing, tables
    from recurra.errors import UnknownNameError

    pools = {"final": "last", "mean": "mean", "max": "max"}
    if pool not in pools:
        raise UnknownNameError("--pool", repr(pool), pools)
    tables.check_suffix(out, (".npz",))
    held = models.load(model)
    names, found = embeddings.vectors(held, data, pools[pool])
    if out is not None and out.suffix.lower() == ".npz":
        _npz(out, names, found)
    else:
        key = held.reading.get("id") or ("text" if held.task == "language" else "sequence")
        columns = {key: names, **{f"h{k}": found[:, k].tolist() for k in range(found.shape[1])}}
        tables.put(columns, out, json)
    if out is not None:
        printing.aside().print(
            f"{len(names):,} vectors of {found.shape[1]} numbers in {printing.place(out)}.", soft_wrap=True
        )


def _npz(path: Path, names: list[str], found) -> None:
    import numpy as np

    draft = path.with_name(f".{path.name}")
    with writing(path):
        with draft.open("wb") as file:
            np.savez(file, names=np.array(names), hidden=found)
        os.replace(draft, path)
