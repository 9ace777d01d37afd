"""Embeddings of sequences: pooled outputs of a model's recurrent layer, one vector each."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy, deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from recurra.cli.model_folder import SavedModel
from recurra.data.batching import collate
from recurra.data.data_errors import EmptyFileError
from recurra.estimators.network import POOLS
from recurra.layers import Recurrent
from recurra.models.language.model import WAYS
from recurra.problem import LoadedData

BATCH_SIZE = 256


@torch.no_grad()
def embed_file(model: SavedModel, source: str, pool: str) -> tuple[list[str], np.ndarray]:
    """Names of the sequences (series, sentences, lines), and their vectors (n, H)."""
    data = model.read(source)
    match model.task:
        case "forecast":
            return _embed_series(model.estimator, data, pool)
        case "tag":
            return data.names, _embed_sentences(model.estimator.tagger_, data.X, pool)
        case "language":
            return _embed_lines(model.estimator.model_, data.X, pool, source)
        case "translate":
            return data.names, _embed_sources(model.estimator, data.X, pool)
    return data.names, _embed_sequences(model.estimator, data.X, pool)


def _embed_sequences(estimator: Any, X: list[np.ndarray], pool: str) -> np.ndarray:
    layer = deepcopy(estimator.network_.recurrent).eval().double()
    parts = []
    for first in range(0, len(X), BATCH_SIZE):
        scaled = [torch.tensor(estimator.input_scaling_.apply(x)) for x in X[first : first + BATCH_SIZE]]
        lengths = torch.tensor([len(x) for x in scaled])
        parts.append(POOLS[pool](layer, layer(pad_sequence(scaled), lengths=lengths)[0], lengths))
    return torch.cat(parts).numpy()


def _embed_sources(estimator: Any, texts: list[str], pool: str) -> np.ndarray:
    outputs = [torch.tensor(read).double() for read in estimator.encode(texts)]
    lengths = torch.tensor([len(read) for read in outputs])
    return POOLS[pool](estimator.model_.encoder, pad_sequence(outputs), lengths).numpy()


@contextmanager
def record_outputs(layer: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """A list that collects (outputs (T, B, H), lengths (B,)) of every call of a layer inside the `with` block."""
    recorded: list[tuple[Tensor, Tensor]] = []

    def record(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        y = out[0].double()
        lengths = named.get("lengths")
        recorded.append((y, torch.full((y.shape[1],), len(y)) if lengths is None else lengths))

    handle = layer.register_forward_hook(record, with_kwargs=True)
    try:
        yield recorded
    finally:
        handle.remove()


def _embed_series(estimator: Any, data: LoadedData, pool: str) -> tuple[list[str], np.ndarray]:
    """The names of the series, one for each target, and their vectors without the forecast step."""
    reads = copy(estimator)
    reads.network_ = deepcopy(estimator.network_)
    reads.network_.share.fill_(1.0)  # a forecast to which the network adds nothing would not run it
    with record_outputs(reads.network_.recurrent) as recorded:
        reads.predict(1, data.X, placeholder_future(estimator, data.X))
    layer = reads.network_.recurrent
    vectors = [POOLS[pool](layer, _zero_padding(y, n - 1), n - 1) for y, n in recorded]
    return estimator.series_names(data.X), torch.cat(vectors).numpy()


def placeholder_future(estimator: Any, table: Any) -> Any:
    """Some values for the inputs known in advance; they affect only the forecast step, which is not used."""
    return table.drop_columns([name for name in ("ds",) if name in table.column_names]) if estimator.known else None


def _zero_padding(y: Tensor, lengths: Tensor) -> Tensor:
    """Outputs with zeros past each length, as mean pooling expects."""
    steps = torch.arange(len(y))
    return y.masked_fill((steps[:, None] >= lengths)[:, :, None], 0.0)


def _embed_sentences(tagger: nn.Module, sentences: list[list[str]], pool: str) -> np.ndarray:
    data = tagger.encode(sentences)  # pyrefly: ignore
    top = [module for module in tagger.modules() if isinstance(module, Recurrent)][-1]
    found = np.empty((len(data), 0))
    for ids in torch.arange(len(data)).split(BATCH_SIZE):
        batch = collate(data, ids)
        with record_outputs(top) as recorded:
            tagger(batch.inputs, batch.lengths)
        part = POOLS[pool](top, recorded[-1][0], batch.lengths).numpy()
        found = found if found.shape[1] else np.empty((len(data), part.shape[1]))
        found[ids.numpy()] = part
    return found


def _embed_lines(network: Any, text: str, pool: str, source: str) -> tuple[list[str], np.ndarray]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise EmptyFileError(source, "only blank lines", "one line of text per vector")
    rows = []
    for line in lines:
        tokens = network.vocabulary.encode(line)[:, None]
        contexts = zip(WAYS[network.direction], network.contexts(tokens), strict=True)
        read = [outputs[-1].flip(0) if way == "backward" else outputs[-1] for way, outputs in contexts]
        rows.append(POOLS[pool](None, torch.cat(read, dim=-1).double(), torch.tensor([len(tokens)])))
    return lines, torch.cat(rows).numpy()
