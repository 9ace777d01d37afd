"""Resuming with other settings: what differs is named, and used once that is accepted."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import recurra as rc
from recurra.data import Batches, SequenceSet, Streams
from recurra.train import Checkpoints, MismatchError, cosine, fit
from recurra.train.run_settings import describe, differences


def sequences(seed: int = 0, count: int = 12) -> SequenceSet:
    random = torch.Generator().manual_seed(seed)
    inputs, targets = torch.randn(count, 4, 2, generator=random), torch.randn(count, 2, generator=random)
    return SequenceSet.from_arrays(inputs, targets, "regression")


class Last(nn.Module):
    def __init__(self, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.drop, self.head = rc.GRU(2, 3), nn.Dropout(dropout), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.drop(self.layer(x)[0][-1]))


def run(folder, *, model=None, data=None, valid=None, epochs=2, accept=False, **options):
    options = {"lr": 0.01, "batch_size": 4, "loss": "mse", "progress": False} | options
    model, data = model or Last(), sequences() if data is None else data
    kept = Checkpoints(folder, accept_changes=accept)
    return model, fit(model, data, valid or sequences(9), epochs=epochs, checkpoints=kept, **options)


CHANGES = {
    "lr": ({"lr": 0.02}, r"lr was 0\.01, now 0\.02"),
    "batch_size": ({"batch_size": 3}, r"batch_size was 4, now 3"),
    "loss": ({"loss": "mae"}, r"loss was squared_error, now absolute_error"),
    "another function": ({"loss": lambda y, t: F.mse_loss(y, 2 * t)}, r"loss was squared_error, now .*<lambda>"),
    "values": ({"data": sequences(1)}, r"train was 12 sequences of 48 steps, \w+, now 12 sequences of 48 steps, \w+"),
    "count": ({"data": sequences(0, 11)}, r"train was 12 sequences of 48 steps, \w+, now 11 sequences of 44"),
    "valid": ({"valid": sequences(3)}, r"valid was 12 sequences"),
    "model": ({"model": Last(0.5)}, r"model was \(drop\): Dropout\(p=0\.0, .*, now \(drop\): Dropout\(p=0\.5"),
    "schedule": ({"schedule": cosine(warmup=2)}, r"schedule was None, now \{'function': 'cosine"),
    "clip": ({"clip": 1.0}, r"clip was None, now 1\.0"),
    "accumulate": ({"accumulate": 2}, r"accumulate was 1, now 2"),
    "betas": (
        {"optimizer": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.5, 0.999)), "lr": None},
        r"optimizer was options betas 0\.9, now options betas 0\.5",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_named_and_accepted_on_demand(tmp_path, name):
    changed, said = CHANGES[name]
    run(tmp_path, epochs=1)
    with pytest.raises(MismatchError, match=rf"saved with other settings: {said}.*accept_changes=True"):
        run(tmp_path, **changed)
    before = [path.name for path in tmp_path.iterdir()]
    with pytest.raises(MismatchError):
        run(tmp_path, **changed)
    assert [path.name for path in tmp_path.iterdir()] == before  # a refused call writes nothing
    _, result = run(tmp_path, accept=True, **changed)
    assert [record["epoch"] for record in result.history] == [0, 1]
    run(tmp_path, epochs=3, **changed)  # the accepted settings are now those of the run


def test_two_changes_are_named_together(tmp_path):
    run(tmp_path, epochs=1)
    with pytest.raises(MismatchError, match=r"lr was 0\.01, now 0\.1; batch_size was 4, now 6\. "):
        run(tmp_path, lr=0.1, batch_size=6)


def test_more_epochs_or_patience_are_no_other_settings(tmp_path):
    run(tmp_path, epochs=1)
    _, result = run(tmp_path, epochs=3, patience=5)
    assert len(result.history) == 3


def test_an_accepted_learning_rate_is_used(tmp_path):
    """SGD without momentum has no state: a run resumed with another rate is one that starts from its weights."""
    half, _ = run(tmp_path, epochs=1, optimizer="sgd", lr=0.1)
    resumed, result = run(tmp_path, epochs=2, optimizer="sgd", lr=0.5, accept=True)
    assert [record["rate"] for record in result.history] == [0.1, 0.5]
    expected = Last()
    expected.load_state_dict(half.state_dict())
    for batch in list(Batches(sequences(), 4).epoch(1)):
        expected.zero_grad()
        F.mse_loss(expected(batch.inputs), batch.targets).backward()
        with torch.no_grad():
            for parameter in expected.parameters():
                parameter -= 0.5 * parameter.grad
    for one, other in zip(resumed.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_an_accepted_batch_size_begins_the_epoch_again(tmp_path):
    """A run that stopped after two batches of four sees all twelve sequences of the epoch in batches of three."""

    def stop(event, state):
        state.stop = event == "step" and state.progress.step == 2

    class Seen(Last):
        rows = 0

        def forward(self, x):
            self.rows += x.shape[1] * self.training
            return super().forward(x)

    kept = Checkpoints(tmp_path, every=1, keep=9)
    options = {"lr": 0.01, "progress": False}
    fit(Seen(), sequences(), batch_size=4, checkpoints=kept, epochs=1, callbacks=[stop], **options)
    for newest in sorted(tmp_path.glob("checkpoint-*"))[3:]:  # back to the state in the middle of the epoch
        for file in newest.iterdir():
            file.unlink()
        newest.rmdir()
    model = Seen()
    fit(model, sequences(), batch_size=3, checkpoints=Checkpoints(tmp_path, accept_changes=True), epochs=1, **options)
    assert model.rows == 12


def test_another_shape_cannot_be_accepted(tmp_path):
    run(tmp_path, epochs=1)
    wider = nn.Sequential()
    wider.layer, wider.head = rc.GRU(2, 5), nn.Linear(5, 2)
    with pytest.raises(MismatchError, match="another model"):
        run(tmp_path, model=wider, accept=True)


def test_the_same_call_describes_itself_the_same_way():
    def loss(power):
        return lambda y, t: (y - t).abs().pow(power).mean()

    assert describe(loss(2)) == describe(loss(2)) != describe(loss(3))
    assert describe(functools.partial(F.cross_entropy, label_smoothing=0.1)) != describe(F.cross_entropy)
    assert describe(lambda y, t: y + t) != describe(lambda y, t: y - t)
    assert describe(Streams(torch.arange(9.0), 1, 3)) == describe(Streams(torch.arange(9.0), 1, 3))
    assert describe(list(range(1000))) != describe([*range(999), 0])
    assert differences({"a": 1, "gone": 2}, {"a": 1, "new": 3}) == {}


def test_only_a_part_of_a_large_set_is_read():
    """Of a million steps, a hundred thousand are read, the ends among them."""

    class Counted(list):
        steps = 0

        def window(self, index, start, stop):
            self.steps += stop - start
            return torch.full((stop - start, 1), float(index))

    inputs = Counted(range(1000))
    data = SequenceSet(inputs, [torch.zeros(1)] * 1000, torch.full((1000,), 5000), "regression")
    assert describe(data).startswith("1000 sequences of 5000000 steps, ")
    assert inputs.steps == 100_000
