"""`recurra embed MODEL DATA`: one hidden-state vector per sequence."""

import os
from pathlib import Path
from typing import Annotated

import typer

from recurra.cli.error_handling import report_errors_as
from recurra.cli.options import OUTPUT, Data, Encoding, Fill, Json, Missing, ModelFolder, Sort


def embed(
    model: ModelFolder,
    data: Data,
    missing: Missing = None,
    fill: Fill = None,
    sort: Sort = None,
    encoding: Encoding = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Output file: .csv, .jsonl, .parquet, .npz, …", rich_help_panel=OUTPUT
        ),
    ] = None,
    pool: Annotated[str, typer.Option(help="Pooling over steps: final, mean or max.")] = "final",
    json: Json = False,
) -> None:
    """Embed sequences: one vector each, the pooled hidden states of the recurrent layer.

    For clustering, similarity search, or as features of another model.
    """
    from recurra.cli import embeddings, model_folder, printing, tables
    from recurra.errors import UnknownNameError

    pools = {"final": "last", "mean": "mean", "max": "max"}
    if pool not in pools:
        raise UnknownNameError("--pool", repr(pool), pools)
    tables.check_suffix(out, (".npz",))
    saved = model_folder.load_model(model).cleaned(missing=missing, fill=fill, sort=sort, encoding=encoding)
    names, vectors = embeddings.embed_file(saved, data, pools[pool])
    if out is not None and out.suffix.lower() == ".npz":
        _write_npz(out, names, vectors)
    else:
        key = saved.schema.get("id") or ("text" if saved.task in ("language", "translate") else "sequence")
        columns = {key: names, **{f"h{k}": vectors[:, k].tolist() for k in range(vectors.shape[1])}}
        tables.write_table(columns, out, json)
    if out is not None:
        count = f"{len(names):,} vector{'s' if len(names) != 1 else ''}"
        message = f"Wrote {count} of length {vectors.shape[1]} to {printing.bold(out)}."
        printing.stderr_console().print(message, soft_wrap=True)


def _write_npz(path: Path, names: list[str], vectors) -> None:
    import numpy as np

    draft = path.with_name(f".{path.name}")
    with report_errors_as(path):
        with draft.open("wb") as file:
            np.savez(file, names=np.array(names), hidden=vectors)
        os.replace(draft, path)
