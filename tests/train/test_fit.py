"""What one call of fit computes, held against the same computed by hand in float64."""

import json
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import recurra as rc
from recurra.data import Batches, SequenceSet, Streams
from recurra.errors import InputError, OptionError, ShapeError, UnknownNameError
from recurra.train import Checkpoints, MeanLoss, cosine, evaluate, exponential, fit, linear, load_weights


class Net(nn.Module):
    def __init__(self, inputs: int = 2, hidden: int = 5, outputs: int = 3):
        super().__init__()
        self.rnn, self.head = nn.GRU(inputs, hidden), nn.Linear(hidden, outputs)
        self.double()

    def forward(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, state = self.rnn(x, state)
        return self.head(y), state


def tagging(count: int = 12, classes: int = 3) -> SequenceSet:
    lengths = torch.randint(2, 9, (count,)).tolist()
    inputs = [torch.randn(n, 2, dtype=torch.float64) for n in lengths]
    labels = [torch.randint(0, classes, (n,)) for n in lengths]
    return SequenceSet.from_arrays(inputs, labels, "tagging")


def regression(count: int = 12) -> SequenceSet:
    inputs = [torch.randn(4, 2, dtype=torch.float64) for _ in range(count)]
    return SequenceSet.from_arrays(inputs, [x.sum(0) for x in inputs], "regression")


class LastStep(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2).double()

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.linear(x[lengths - 1, torch.arange(len(lengths))])


def by_hand(model: nn.Module, data: SequenceSet) -> Tensor:
    """The mean cross-entropy over the real steps, one sequence at a time: no padding anywhere."""
    outputs = [model(x[:, None])[0][:, 0] for x, _ in data]
    return F.cross_entropy(torch.cat(outputs), torch.cat([y for _, y in data]))


def twin(model: nn.Module) -> nn.Module:
    other = type(model)()
    other.load_state_dict(model.state_dict())
    return other


def assert_equal_weights(left: nn.Module, right: nn.Module, tolerance: float = 1e-12) -> None:
    for (name, a), b in zip(left.named_parameters(), right.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance, msg=name)


@pytest.mark.parametrize(("batch_size", "accumulate"), [(12, 1), (4, 3), (5, 3), (1, 12)])
def test_accumulated_ragged_batches_are_one_big_batch(batch_size, accumulate):
    data, model = tagging(), Net()
    expected = twin(model)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.5)
    by_hand(expected, data).backward()
    optimizer.step()
    source = Batches(data, batch_size, seed=1)
    result = fit(model, source, optimizer="sgd", lr=0.5, epochs=1, accumulate=accumulate)
    assert result.steps == 1
    assert_equal_weights(model, expected)


def test_loss_of_an_epoch_is_the_mean_over_real_steps():
    data, model = tagging(), Net()
    expected = by_hand(model, data).item()
    result = fit(model, Batches(data, 5), data, batch_size=4, optimizer="sgd", lr=1e-30, epochs=1)
    assert result.history[0]["loss"] == pytest.approx(expected, abs=1e-13)
    assert result.history[0]["valid_loss"] == pytest.approx(expected, abs=1e-13)


def test_metrics_are_means_over_items():
    data, model = tagging(), Net()
    accuracy = lambda output, target: (output.argmax(-1) == target).double()  # noqa: E731
    hits = [(model(x[:, None])[0][:, 0].argmax(-1) == y).double() for x, y in data]
    measured = evaluate(model, data, metrics={"accuracy": accuracy}, batch_size=5)
    assert measured["accuracy"] == pytest.approx(float(torch.cat(hits).mean()), abs=1e-13)
    result = fit(model, data, data, batch_size=5, metrics={"accuracy": accuracy}, lr=1e-30, epochs=1)
    assert result.history[0]["valid_accuracy"] == measured["accuracy"]


def test_ignored_labels_do_not_count():
    data, model = tagging(), Net()
    inputs, labels = zip(*data, strict=True)
    kept = [torch.where(torch.arange(len(y)) % 2 == 0, y, -100) for y in labels]
    sparse = SequenceSet.from_arrays(inputs, kept, "tagging", classes=("a", "b", "c"))
    outputs = torch.cat([model(x[:, None])[0][::2, 0] for x in inputs])
    expected = F.cross_entropy(outputs, torch.cat([y[::2] for y in labels]))
    assert evaluate(model, sparse, batch_size=5)["loss"] == pytest.approx(expected.item(), abs=1e-13)


def test_one_target_a_sequence_with_lengths():
    data, model = regression(), LastStep()
    predicted = torch.stack([model.linear(x[-1]) for x, _ in data])
    expected = F.mse_loss(predicted, torch.stack([y for _, y in data]))
    assert evaluate(model, Batches(data, 5))["loss"] == pytest.approx(expected.item(), abs=1e-13)


def test_binary_cross_entropy_sums_keys_and_averages_steps():
    inputs = [torch.randint(0, 2, (n, 3)).double() for n in (4, 7)]
    data = SequenceSet.one_step_ahead(inputs, torch.tensor([4, 7]), "next_step")
    model = Net(3)
    losses = [F.binary_cross_entropy_with_logits(model(x[:-1, None])[0][:, 0], x[1:], reduction="sum") for x in inputs]
    expected = sum(losses).item() / (3 + 6)
    assert evaluate(model, data, loss="binary_cross_entropy")["loss"] == pytest.approx(expected, abs=1e-12)


def test_clipping_is_by_the_norm_of_the_whole_gradient():
    data, model = tagging(), Net()
    expected = twin(model)
    optimizer = torch.optim.SGD(expected.parameters(), lr=1.0)
    by_hand(expected, data).backward()
    norm = nn.utils.clip_grad_norm_(expected.parameters(), 0.01)
    assert norm > 0.02, "nothing to clip"
    optimizer.step()
    seen = []
    fit(
        model,
        Batches(data, 12),
        optimizer="sgd",
        lr=1.0,
        clip=0.01,
        epochs=1,
        callbacks=[lambda e, r: seen.append(r.norm)],
    )
    assert_equal_weights(model, expected)
    assert seen[-1] == pytest.approx(float(norm), rel=1e-12)


def rates(schedule, **options) -> list[float]:
    seen: list[float] = []
    record = lambda event, run: seen.extend(run.rates) if event == "step" else None  # noqa: E731
    fit(Net(), Batches(tagging(), 6), epochs=4, callbacks=[record], **{"schedule": schedule, "lr": 0.1} | options)
    return seen


def test_schedules_follow_their_formulas():
    steps = range(8)
    assert rates(None) == [0.1] * 8
    assert rates(linear(floor=0.2)) == pytest.approx([0.1 * (1 - 0.8 * s / 8) for s in steps], rel=1e-12)
    assert rates(exponential(half_life=2)) == pytest.approx([0.1 * 0.5 ** (s / 2) for s in steps], rel=1e-12)
    decay = [0.5 * (1 + math.cos(math.pi * max(0, s - 2) / 6)) for s in steps]
    rise = [1 / 3, 2 / 3, *[1.0] * 6]
    assert rates(cosine(warmup=2)) == pytest.approx([0.1 * a * b for a, b in zip(rise, decay, strict=True)], rel=1e-12)


def test_schedulers_of_torch_are_stepped():
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    record = lambda event, run: seen.append(run.rates[0]) if event == "step" else None  # noqa: E731
    schedule = StepLR(optimizer, 3, gamma=0.5)
    fit(model, Batches(tagging(), 6), optimizer=optimizer, schedule=schedule, epochs=4, callbacks=[record])
    assert seen == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025])  # read after the scheduler moved


def test_plateau_scheduler_hears_the_validation_loss():
    model, data = Net(), tagging()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-30)  # nothing improves
    schedule = ReduceLROnPlateau(optimizer, factor=0.1, patience=0, eps=0.0)
    result = fit(model, data, data, optimizer=optimizer, schedule=schedule, epochs=3)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-32, rel=1e-9)
    assert len(result.history) == 3


def test_early_stopping_restores_the_best_weights():
    data, other, model = tagging(), tagging(), Net()
    snapshots = {}

    def remember(event, run):
        if event == "epoch":
            snapshots[run.progress.epoch] = {k: v.clone() for k, v in run.model.state_dict().items()}

    result = fit(model, data, other, batch_size=4, lr=0.05, epochs=60, patience=3, callbacks=[remember])
    losses = [record["valid_loss"] for record in result.history]
    assert result.stopped == "early"
    assert result.best_epoch == min(range(len(losses)), key=losses.__getitem__)
    assert len(losses) == result.best_epoch + 1 + 3
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, snapshots[result.best_epoch][name])
    assert evaluate(model, other)["loss"] == pytest.approx(result.best_loss, abs=1e-12)
    assert not torch.equal(snapshots[result.best_epoch]["head.weight"], snapshots[len(losses) - 1]["head.weight"])


def test_validation_leaves_no_trace_in_training():
    class Noisy(Net):
        def forward(self, x, state=None):
            y, state = super().forward(x, state)
            return y + 0.1 * torch.randn_like(y), state  # in evaluation as well

    data, first = tagging(), Noisy()
    second = twin(first)
    random = torch.get_rng_state()
    fit(first, data, epochs=2)
    torch.set_rng_state(random)
    fit(second, data, data, epochs=2)
    assert_equal_weights(first, second, tolerance=0.0)


def test_streams_carry_the_detached_state():
    wave = torch.randn(41, 3, dtype=torch.float64)
    model = Net(3)
    expected = Net(3)
    expected.load_state_dict(model.state_dict())
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    lanes = wave[:40].view(2, 20, 3).transpose(0, 1), wave[1:].view(2, 20, 3).transpose(0, 1)
    for _ in range(2):
        state = None
        for t in range(0, 20, 5):
            output, state = expected(lanes[0][t : t + 5], state)
            optimizer.zero_grad()
            F.mse_loss(output, lanes[1][t : t + 5]).backward()
            optimizer.step()
            state = state.detach()
    fit(model, Streams(wave, 2, 5), optimizer="sgd", lr=0.1, epochs=2)
    assert_equal_weights(model, expected)


def test_resets_inside_a_chunk_start_the_state_anew():
    data, model = tagging(), Net()
    steps = int(data.lengths.sum())
    whole = Streams(data, 1, steps)  # one lane: every sequence once, from its own beginning
    assert evaluate(model, whole)["loss"] == pytest.approx(by_hand(model, data).item(), abs=1e-12)
    assert evaluate(model, Streams(data, 1, 7))["loss"] == pytest.approx(by_hand(model, data).item(), abs=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru", "mgu"])
def test_layers_of_recurra_take_lengths_states_and_resets(cell):
    """The same mean over the same steps, whole and padded, or as one tape cut into chunks."""
    data = tagging()
    layer = rc.layer(cell, 2, 3).double()
    expected = F.cross_entropy(
        torch.cat([layer(x[:, None])[0][:, 0] for x, _ in data]), torch.cat([y for _, y in data])
    )
    for source in (Batches(data, 5), Streams(data, 1, 7)):
        assert evaluate(layer, source)["loss"] == pytest.approx(expected.item(), abs=1e-12)
    result = fit(layer, Streams(data, 2, 7), epochs=5, lr=0.05)
    assert result.history[-1]["loss"] < result.history[0]["loss"]


def test_accumulated_chunks_of_a_stream_carry_on_inside_the_step():
    wave, model = torch.randn(41, 3, dtype=torch.float64), Net(3)
    expected = Net(3)
    expected.load_state_dict(model.state_dict())
    first, state = expected(wave[:20, None])
    second, _ = expected(wave[20:40, None], state.detach())
    F.mse_loss(torch.cat([first, second]), wave[1:, None]).backward()
    torch.optim.SGD(expected.parameters(), lr=0.1).step()
    fit(model, Streams(wave, 1, 20), optimizer="sgd", lr=0.1, epochs=1, accumulate=2)
    assert_equal_weights(model, expected)


def test_bfloat16_on_the_cpu_keeps_float32_weights():
    seen = set()

    class Watched(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            y = self.linear(x)
            seen.add(y.dtype)
            return y[-1]

    data = SequenceSet.from_arrays(torch.randn(8, 4, 2), torch.randn(8, 2), "regression")
    model = Watched()
    result = fit(model, data, epochs=20, lr=0.05, precision="bfloat16")
    assert seen == {torch.bfloat16}
    assert result.precision == "bfloat16"
    assert model.linear.weight.dtype == torch.float32
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    seen.clear()
    assert fit(model, data, epochs=1).precision == "float32"
    assert seen == {torch.float32}


def test_float16_scales_the_loss_and_resumes(tmp_path):
    class Last(nn.Linear):
        def forward(self, input):
            return super().forward(input)[-1]

    data = SequenceSet.from_arrays(torch.randn(8, 4, 2), torch.randn(8, 2), "regression")
    torch.manual_seed(1)
    first, second = Last(2, 2), Last(2, 2)
    second.load_state_dict(first.state_dict())
    fit(first, data, epochs=4, precision="float16")
    fit(second, data, epochs=2, precision="float16", checkpoints=tmp_path)
    fit(second, data, epochs=4, precision="float16", checkpoints=tmp_path)
    assert_equal_weights(first, second, tolerance=0.0)


def test_a_finished_run_is_loaded_and_a_longer_one_goes_on(tmp_path):
    data, model = tagging(), Net()
    whole = twin(model)
    fit(whole, data, data, epochs=5)
    first = fit(model, data, data, epochs=3, checkpoints=tmp_path)
    again = Net()
    assert fit(again, data, data, epochs=3, checkpoints=tmp_path) == first
    assert_equal_weights(again, model, tolerance=0.0)
    assert fit(Net(), data, data, epochs=5, checkpoints=tmp_path).history[:3] == first.history
    assert_equal_weights(load_weights(Net(), tmp_path, "last"), whole, tolerance=0.0)


def test_callbacks_stop_a_run_and_are_part_of_the_checkpoint(tmp_path):
    class Counter:
        def __init__(self, limit: int):
            self.limit, self.steps = limit, 0

        def __call__(self, event, run):
            self.steps += event == "step"
            run.stop = run.stop or self.steps == self.limit

        def state_dict(self):
            return {"steps": self.steps, "trace": torch.arange(self.steps)}

        def load_state_dict(self, state):
            assert torch.equal(state["trace"], torch.arange(state["steps"]))
            self.steps = state["steps"]

    source, counter = Batches(tagging(), 3), Counter(6)
    result = fit(Net(), source, epochs=5, callbacks=[counter], checkpoints=tmp_path)
    assert (result.steps, result.stopped, len(result.history)) == (6, "callback", 2)
    later = Counter(100)
    assert fit(Net(), source, epochs=5, callbacks=[later], checkpoints=tmp_path).steps == 6
    assert later.steps == 6


def test_log_has_one_line_a_step_and_epoch(tmp_path):
    fit(Net(), Batches(tagging(), 6), tagging(), epochs=2, log=tmp_path / "deep" / "log.jsonl")
    records = [json.loads(line) for line in (tmp_path / "deep" / "log.jsonl").read_text().splitlines()]
    assert [r["event"] for r in records] == ["start", "step", "step", "epoch", "step", "step", "epoch", "end"]
    assert records[0]["device"] == "cpu"
    assert records[0]["precision"] == "float64"
    assert [r["step"] for r in records if r["event"] == "step"] == [1, 2, 3, 4]
    assert records[-2]["valid_loss"] > 0


def test_bar_shows_loss_rate_and_time_left_and_is_quiet_elsewhere(capfd):
    fit(Net(), Batches(tagging(), 3), epochs=2)
    assert capfd.readouterr() == ("", "")
    fit(Net(), Batches(tagging(), 3), epochs=2, progress=True)
    shown = capfd.readouterr().err
    assert "on cpu, float64" in shown
    for part in ("epoch 2/2", "loss ", "steps/s", "0:00:00"):
        assert part in shown


def test_an_objective_of_ones_own():
    class L2(MeanLoss):
        def __call__(self, model, batch, state):
            sums, state = super().__call__(model, batch, state)
            penalty = sum(p.square().sum() for p in model.parameters())
            return {"loss": sums["loss"] + 0.1 * self.count(batch) * penalty}, state

    data, model = tagging(), Net()
    expected = (by_hand(model, data) + 0.1 * sum(p.square().sum() for p in model.parameters())).item()
    assert fit(model, data, loss=L2(F.cross_entropy), lr=1e-30, epochs=1).history[0]["loss"] == pytest.approx(
        expected, abs=1e-11
    )


def test_the_model_stays_in_the_mode_it_was_in():
    model = Net().eval()
    fit(model, tagging(), tagging(), epochs=1)
    assert not model.training


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (InputError, "epochs: got 0", {"epochs": 0}),
        (InputError, "accumulate: got 0", {"accumulate": 0}),
        (InputError, "clip: got -1", {"clip": -1}),
        (InputError, "patience: got 3, expected validation data", {"patience": 3}),
        (UnknownNameError, "loss: got mze, expected one of .*; did you mean 'mse'", {"loss": "mze"}),
        (UnknownNameError, "optimizer: got adan, expected one of .*; did you mean 'adam'", {"optimizer": "adan"}),
        (UnknownNameError, "precision: got float8", {"precision": "float8"}),
        (InputError, "device: got 'gpu0'", {"device": "gpu0"}),
        (OptionError, "batch_size: got 3, expected no batch_size: Batches has its own", {"batch_size": 3}),
        (OptionError, "lr: got 0.1, expected no lr", {"lr": 0.1, "optimizer": partial(torch.optim.SGD, lr=0.1)}),
        (InputError, "optimizer: got parameters of another model", {"optimizer": torch.optim.SGD([torch.zeros(1)])}),
        (InputError, "train: got list", {"train": [1, 2]}),
        (InputError, "schedule: got int", {"schedule": 3}),
    ],
)
def test_wrong_arguments_are_named(error, words, options):
    data = {"train": Batches(tagging(), 3)} | options
    with pytest.raises(error, match=words):
        fit(Net(), **data)


def test_wrong_shapes_are_named_before_torch_broadcasts_them():
    class Wrong(nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.weight, self.shape = nn.Parameter(torch.ones(())), shape

        def forward(self, x):
            return self.weight * torch.zeros(self.shape)

    batches = Batches(SequenceSet.from_arrays(torch.randn(6, 4, 2), torch.randn(6, 2), "regression"), 6)
    with pytest.raises(ShapeError, match=r"model output: got \(4, 6, 2\), expected \(6, …\)"):
        fit(Wrong((4, 6, 2)), batches)
    with pytest.raises(ShapeError, match=r"model output: got \(1,\) an item, expected \(2,\)"):
        fit(Wrong((6, 1)), batches)


def test_streams_need_a_model_with_a_state():
    class Stateless(nn.Linear):
        pass

    with pytest.raises(InputError, match="model: got an output alone, expected \\(output, state\\)"):
        fit(Stateless(3, 3), Streams(torch.randn(41, 3), 2, 5))


def test_checkpoint_settings_are_checked(tmp_path):
    with pytest.raises(InputError, match="every: got 0"):
        Checkpoints(tmp_path, every=0)
    with pytest.raises(InputError, match="keep: got 0"):
        Checkpoints(tmp_path, keep=0)
