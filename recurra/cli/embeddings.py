"""What a model's recurrent layer makes of sequences: one vector each."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from recurra.cli.models import Model
from recurra.data.batching import collate
from recurra.data.data_errors import EmptyFileError
from recurra.estimators.network import POOLS
from recurra.layers import Recurrent
from recurra.problem import Found

TOGETHER = 256  # sequences at a time


@torch.no_grad()
def vectors(model: Model, source: str, pool: str) -> tuple[list[str], np.ndarray]:
    """Names of the sequences (series, sentences, lines), and (n, H)."""
    found = model.read(source)
    match model.task:
        case "forecast":
            return found.names, _of_series(model.estimator, found, pool)
        case "tag":
            return found.names, _of_sentences(model.estimator.tagger_, found.X, pool)
        case "language":
            return _of_lines(model.estimator.model_, found.X, pool, source)
    return found.names, _of_sequences(model.estimator, found.X, pool)


def _of_sequences(estimator: Any, X: list[np.ndarray], pool: str) -> np.ndarray:
    layer = deepcopy(estimator.network_.recurrent).eval().double()
    parts = []
    for first in range(0, len(X), TOGETHER):
        scaled = [torch.tensor(estimator.input_scaling_.apply(x)) for x in X[first : first + TOGETHER]]
        lengths = torch.tensor([len(x) for x in scaled])
        parts.append(POOLS[pool](layer(pad_sequence(scaled), lengths=lengths)[0], lengths))
    return torch.cat(parts).numpy()


@contextmanager
def overheard(layer: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Inside, (outputs (T, B, H), lengths (B,)) of every call of a layer."""
    heard: list[tuple[Tensor, Tensor]] = []

    def note(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
        y = out[0].double()
        lengths = named.get("lengths")
        heard.append((y, torch.full((y.shape[1],), len(y)) if lengths is None else lengths))

    handle = layer.register_forward_hook(note, with_kwargs=True)
    try:
        yield heard
    finally:
        handle.remove()


def _of_series(estimator: Any, found: Found, pool: str) -> np.ndarray:
    with overheard(estimator.network_.recurrent) as heard:
        estimator.predict(1, found.X, _stand_in(estimator, found))
    return torch.cat([POOLS[pool](_until(y, n - 1), n - 1) for y, n in heard]).numpy()  # the last step is to come


def _stand_in(estimator: Any, found: Found) -> Any:
    """Where columns are known in advance, any will do: the step to come is not looked at."""
    return found.X if estimator.known else None


def _until(y: Tensor, lengths: Tensor) -> Tensor:
    """Outputs past an end as zeros, which a mean counts on."""
    steps = torch.arange(len(y))
    return y.masked_fill((steps[:, None] >= lengths)[:, :, None], 0.0)


def _of_sentences(tagger: nn.Module, sentences: list[list[str]], pool: str) -> np.ndarray:
    data = tagger.encode(sentences)  # pyrefly: ignore
    top = [module for module in tagger.modules() if isinstance(module, Recurrent)][-1]
    found = np.empty((len(data), 0))
    for ids in torch.arange(len(data)).split(TOGETHER):
        batch = collate(data, ids)
        with overheard(top) as heard:
            tagger(batch.inputs, batch.lengths)
        part = POOLS[pool](heard[-1][0], batch.lengths).numpy()
        found = found if found.shape[1] else np.empty((len(data), part.shape[1]))
        found[ids.numpy()] = part
    return found


def _of_lines(network: Any, text: str, pool: str, source: str) -> tuple[list[str], np.ndarray]:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise EmptyFileError(source, "blank lines only", "a line for each vector")
    rows = []
    for line in lines:
        tokens = network.vocabulary.encode(line)[:, None]
        y = torch.cat([outputs[-1] for outputs in network.contexts(tokens)], dim=-1).double()
        rows.append(POOLS[pool](y, torch.tensor([len(tokens)])))
    return lines, torch.cat(rows).numpy()
