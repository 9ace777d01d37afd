"""Numbers that are not finite, and batches that do not fit."""

import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from train import runs

from recurra.data import Batches, SequenceSet, Streams
from recurra.train import NonFiniteError, OutOfMemoryError, evaluate, fit


class Net(nn.Module):
    def __init__(self, middle: nn.Module | None = None):
        super().__init__()
        self.rnn, self.middle, self.head = nn.GRU(2, 4), middle or nn.Identity(), nn.Linear(4, 2)
        self.double()

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, state = self.rnn(x, state)
        return self.head(self.middle(y)), state


class Poison(nn.Module):
    """Finite until its third call in training."""

    def __init__(self, value: float):
        super().__init__()
        self.value, self.calls = value, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += self.training
        return x * self.value if self.calls >= 3 else x


def batches(poisoned: int | None = None, targets: bool = False) -> Batches:
    inputs = torch.randn(8, 5, 2, dtype=torch.float64)
    labels = inputs.clone()
    if poisoned is not None:
        (labels if targets else inputs)[poisoned, 2, 1] = math.nan
    return Batches(SequenceSet.from_arrays(inputs, list(labels), "transduction"), 2, shuffle=False)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_layer_that_fails_is_named_with_step_and_sequences(value):
    model = Net(Poison(value))
    weights = []
    remember = lambda event, run: weights.append(run.model.head.weight.clone())  # noqa: E731
    with pytest.raises(
        NonFiniteError, match=r"step 3: the loss is not finite.*the output of layer middle.*sequences 4, 5"
    ):
        fit(model, batches(), callbacks=[remember])
    assert torch.equal(model.head.weight, weights[2])  # after step 2, and not touched since


def test_data_that_is_not_finite_is_named():
    with pytest.raises(NonFiniteError, match=r"step 4.*the inputs of the batch; sequences 6, 7") as caught:
        fit(Net(), batches(poisoned=7))
    assert (caught.value.step, caught.value.ids) == (4, [6, 7])
    with pytest.raises(NonFiniteError, match=r"step 2.*the targets of the batch; sequences 2, 3"):
        fit(Net(), batches(poisoned=2, targets=True))


def test_the_right_batch_of_an_accumulated_step_is_named():
    with pytest.raises(NonFiniteError, match=r"step 2.*the inputs of the batch; sequences 6, 7"):
        fit(Net(), batches(poisoned=6), accumulate=2)


def test_weights_that_are_not_finite_are_named():
    model = Net()
    with torch.no_grad():
        model.rnn.weight_hh_l0[1, 1] = math.nan
    with pytest.raises(NonFiniteError, match=r"step 1.*the weights rnn.weight_hh_l0"):
        fit(model, batches())


def test_a_gradient_that_is_not_finite_is_named():
    class Root(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + (x * 0).sqrt()  # 0, with an infinite derivative

    with pytest.raises(NonFiniteError, match=r"step 1: the gradient is not finite; first seen in the gradient of rnn"):
        fit(Net(Root()), batches())


def test_a_loss_function_that_fails_is_named():
    with pytest.raises(NonFiniteError, match=r"step 1.*the loss function"):
        fit(Net(), batches(), loss=lambda output, target: (output - target).square().mean() * math.inf)


def test_validation_names_them_as_well():
    with pytest.raises(
        NonFiniteError, match=r"step 4: the loss in evaluation.*the inputs of the batch; sequences 2, 3"
    ):
        fit(Net(), batches(), batches(poisoned=3), epochs=1)


class Greedy(Net):
    """Runs out of memory with more than `limit` sequences at a time."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit, self.sizes = limit, []

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self.sizes.append(x.shape[1])
        y, state = super().forward(x, state)
        if x.shape[1] > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return y, state


def ragged(count: int) -> SequenceSet:
    lengths = torch.randint(2, 9, (count,)).tolist()
    inputs = [torch.randn(n, 2, dtype=torch.float64) for n in lengths]
    return SequenceSet.from_arrays(inputs, inputs, "transduction")


@pytest.mark.parametrize("size", [32, 21])
def test_smaller_parts_give_the_gradient_of_the_whole(size, caplog):
    data, model = Batches(ragged(size), size), Greedy(6)
    whole = Net()
    whole.load_state_dict(model.state_dict())
    fit(whole, data, optimizer="sgd", lr=0.1, epochs=2)
    fit(model, data, optimizer="sgd", lr=0.1, epochs=2)
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
    tries = [n for n in model.sizes if n > 6]
    assert len(tries) == len(caplog.records) <= 3  # the lesson is paid for once
    assert "now taken in" in caplog.text


def test_parts_carry_their_own_states():
    wave, model = torch.randn(161, 2, dtype=torch.float64), Greedy(2)
    whole = Net()
    whole.load_state_dict(model.state_dict())
    fit(whole, Streams(wave, 8, 5), optimizer="sgd", lr=0.1, epochs=2)
    fit(model, Streams(wave, 8, 5), optimizer="sgd", lr=0.1, epochs=2)
    for a, b in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_after_four_halvings_there_is_advice():
    model = Greedy(1)
    with pytest.raises(OutOfMemoryError, match=r"a batch of 64 sequences.*not even in 16 parts.*smaller batch_size"):
        fit(model, Batches(ragged(64), 64))
    assert model.sizes == [64, 32, 16, 8, 4]


def test_a_batch_of_one_cannot_be_halved():
    with pytest.raises(OutOfMemoryError, match=r"a batch of 1 sequences"):
        fit(Greedy(0), Batches(ragged(3), 1))


def test_another_runtime_error_is_not_taken_for_memory():
    class Broken(Net):
        def forward(self, x, state=None):
            raise RuntimeError("a plain bug")

    with pytest.raises(RuntimeError, match=r"a plain bug"):
        fit(Broken(), batches())


def test_evaluation_takes_smaller_parts_too():
    data, model = ragged(16), Greedy(5)
    whole = Net()
    whole.load_state_dict(model.state_dict())
    assert evaluate(model, data, batch_size=16)["loss"] == pytest.approx(evaluate(whole, data)["loss"], abs=1e-13)


REAL = """
import resource, torch
from torch import nn
from recurra.data import Batches, SequenceSet
from recurra.train import fit
torch.set_num_threads(1)

class Hungry(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
    def forward(self, x):
        torch.empty(x.shape[1], 64 << 20, dtype=torch.uint8)  # 64 MiB a sequence
        return self.linear(x)[-1]

data = SequenceSet.from_arrays(torch.randn(16, 3, 2), torch.randn(16, 2), "regression")
fit(Hungry(), Batches(data.select([0]), 1), epochs=1)  # whatever is loaded late is loaded now
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20),) * 2)  # room for less than seven sequences
print(fit(Hungry(), Batches(data, 16), epochs=1).steps)
"""


def test_a_real_shortage_of_memory_is_survived():
    done = subprocess.run(
        [sys.executable, "-c", REAL], env=runs.environment(), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1"
    assert "batches of 16 are now taken in 4 parts" in done.stderr
