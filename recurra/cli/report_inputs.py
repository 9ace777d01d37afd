"""A model's network and a sample of its inputs, scaled and encoded, for `rc.report`."""

from dataclasses import replace
from typing import Any

from torch import nn

from recurra.cli.model_folder import SavedModel
from recurra.data.sequences import SequenceSet
from recurra.problem import LoadedData


def report_inputs(model: SavedModel, data: LoadedData, count: int) -> tuple[nn.Module, Any]:
    """The network and up to `count` sequences, as `rc.report` takes them."""
    given = data.X if data.y is None else (data.X, data.y)
    network, sample = model.estimator.inspection_inputs(given, count)
    names = tuple(model.schema.get("features", ()))
    if isinstance(sample, SequenceSet) and names and len(names) == sample.input_size:
        sample = replace(sample, features=names)
    return network, sample
