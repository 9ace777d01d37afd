"""Every cell, over whole sequences, against its NumPy transcription."""

import numpy as np
import torch
from cases import CASES, Case, draw_inputs, draw_states, every_case
from cells.transcriptions import TRANSCRIPTIONS
from helpers import assert_close, run
from torch import Tensor

import recurra as rc
from recurra.cells import canonical_names


def transcribed(case: Case, cell: rc.Cell, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`(y, *final states)` by the transcription, one sequence at a time."""
    w = {name: tensor.detach().numpy() for name, tensor in (*cell.named_parameters(), *cell.named_buffers())}
    outputs, finals = [], []
    for row in range(x.shape[1]):
        started = (value[row].detach().numpy() for value in state)
        y, final = TRANSCRIPTIONS[case.name](w, x[:, row].numpy(), *started, **case.options)
        outputs.append(np.stack(y))
        finals.append(final)
    states = (torch.from_numpy(np.stack(values)) for values in zip(*finals, strict=True))
    return torch.from_numpy(np.stack(outputs, axis=1)), *states


def test_every_cell_has_a_case_and_a_transcription():
    assert {case.name for case in CASES} == set(canonical_names()) == set(TRANSCRIPTIONS)


@every_case
def test_a_sequence_from_a_given_state(case: Case):
    cell, x = case.cell(), draw_inputs(case, steps=7, batch=3)
    state = draw_states(cell, 3)
    for value, expected in zip(run(cell, x, *state), transcribed(case, cell, x, state), strict=True):
        assert_close(value, expected)


@every_case
def test_a_sequence_from_the_state_cells_start_in(case: Case):
    cell, x = case.cell(), draw_inputs(case, steps=4, batch=2, seed=4)
    state = tuple(_start(case, cell, spec.name).expand(spec.shape(2)) for spec in cell.carried)
    for value, expected in zip(run(cell, x), transcribed(case, cell, x, state), strict=True):
        assert_close(value, expected)


def _start(case: Case, cell: rc.Cell, state: str) -> Tensor:
    """Zero, but for the models that say otherwise: a learned start, or a constant of the cell."""
    if case.name == "unitary_rnn":
        return cell.h_0.detach()
    if (case.name, state) == ("gru_d", "v"):
        return torch.tensor(case.options.get("mean", 0.0), dtype=torch.float64)
    if (case.name, state) == ("gru_d", "s"):
        return torch.tensor(0.0 if case.options.get("timed") else -1.0, dtype=torch.float64)
    return torch.tensor(STARTS.get((case.name, state), case.options.get("start", 0.0)), dtype=torch.float64)


STARTS = {("izhikevich", "v"): -65.0, ("izhikevich", "u"): -13.0}
