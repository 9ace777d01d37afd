"""The last output of every direction is its final state, for sequences of different lengths."""

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.last_outputs import last_outputs

LENGTHS = torch.tensor([7, 1, 4])


@pytest.mark.parametrize("bidirectional", [False, True, "separate"])
@pytest.mark.parametrize(("depth", "layers"), [("stack", 1), ("stack", 2), ("graves", 2)])
def test_final_states(depth: str, layers: int, bidirectional: bool | str):
    torch.manual_seed(0)
    layer = rc.GRU(3, 4, num_layers=layers, depth=depth, bidirectional=bidirectional).double()
    y, state = layer(torch.randn(7, 3, 3, dtype=torch.float64), lengths=LENGTHS)
    found = last_outputs(layer, y, LENGTHS)
    for row in range(3):
        parts = [tuple(part.tolist()) for part in found[row].split(4)]
        assert len(parts) == layer.directions * (layers if depth == "graves" else 1)
        assert set(parts) <= {tuple(final.tolist()) for final in state[:, row]}


def test_a_classifier_reads_the_whole_sequence_in_both_directions():
    """A change of the last step reaches the half of the features that the backward direction gives."""
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(6, 1)) for _ in range(20)], np.arange(20) % 2
    model = rc.SequenceClassifier("gru", 3, bidirectional=True, pool="last", epochs=1, random_state=0).fit(X, y)
    layer = model.network_.recurrent
    x = torch.randn(6, 1, 1, requires_grad=True)
    model.network_.pool(layer, layer(x)[0], torch.tensor([6]))[0, 3:].sum().backward()
    assert x.grad is not None
    assert x.grad.flatten().abs().min() > 0
