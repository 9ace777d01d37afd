"""Every canonical task against its definition, and its baseline against a large sample."""

import math
import re

import pytest
import torch

from recurra.data import tasks
from recurra.data.batching import generator
from recurra.data.sequences import IGNORE
from recurra.data.tasks.grammars import SYMBOLS
from recurra.errors import InputError, OptionError, UnknownNameError

NAMES = [
    "adding",
    "anbn",
    "anbncn",
    "cognitive_battery",
    "context_decision",
    "continual_reber",
    "copy_memory",
    "delayed_match",
    "embedded_reber",
    "flip_flop",
    "latch",
    "mackey_glass",
    "memory_capacity",
    "multi_timescale",
    "narma10",
    "parametric_working_memory",
    "parity",
    "perceptual_decision",
    "ready_set_go",
    "reber",
    "sequential_mnist",
    "serial_recall",
    "sines",
    "spike_distance",
    "temporal_order",
]
GENERATED = [name for name in NAMES if name != "sequential_mnist"]


def test_the_list_is_complete():
    assert tasks.names() == NAMES
    assert all(getattr(tasks, name).name == name for name in NAMES)


@pytest.mark.parametrize("name", GENERATED)
def test_shapes_seeds_and_positions(name):
    task = tasks.make(name)
    batches = task.batches(3, count=4, seed=5)
    epoch = list(batches.epoch(2))
    assert len(epoch) == len(batches) == 4
    for batch in epoch:
        steps, count, width = batch.inputs.shape
        assert (count, width) == (3, task.input_size)
        assert batch.inputs.dtype == torch.float32
        assert int(batch.lengths.max()) == steps
        outputs = task.trivial(batch)
        assert outputs.shape[-1] == task.output_size
        assert math.isfinite(task.score(outputs, batch))
        assert (batch.inputs[~batch.mask] == 0).all()
    (last,) = batches.epoch(2, 3)
    assert torch.equal(last.inputs, epoch[3].inputs)
    assert torch.equal(last.ids, epoch[3].ids)
    assert len({int(i) for e in range(2) for batch in batches.epoch(e) for i in batch.ids}) == 24
    other = next(task.batches(3, count=4, seed=6).epoch(2))
    assert other.inputs.shape != epoch[0].inputs.shape or not torch.equal(other.inputs, epoch[0].inputs)
    elsewhere = next(task.batches(3, count=4, seed=5, rank=1).epoch(2))
    assert elsewhere.inputs.shape != epoch[0].inputs.shape or not torch.equal(elsewhere.inputs, epoch[0].inputs)


@pytest.mark.parametrize("name", GENERATED)
def test_as_a_set_of_sequences(name):
    data = tasks.make(name).sequences(4, seed=1)
    batch = tasks.make(name).draw(4, generator(1))
    assert len(data) == 4
    assert (data.input_size, data.task) == (tasks.make(name).input_size, tasks.make(name).kind)
    length = int(batch.lengths[2])
    assert torch.equal(data[2].inputs, batch.inputs[:length, 2])
    expected = batch.targets[:length, 2] if data.per_step else batch.targets[2]
    assert torch.equal(data[2].target, expected)


@pytest.mark.parametrize(
    ("name", "count", "tolerance"),
    [
        ("adding", 20_000, 0.005),  # standard error 0.0013
        ("copy_memory", 100, 1e-6),  # the same for every sequence
        ("temporal_order", 20_000, 0.012),
        ("latch", 20_000, 0.014),
        ("serial_recall", 20_000, 0.003),
        ("parity", 10_000, 0.012),
        ("reber", 20_000, 0.01),
        ("embedded_reber", 20_000, 0.014),
        ("continual_reber", 2_000, 0.014),
        ("anbn", 20_000, 0.008),
        ("anbncn", 20_000, 0.008),
        ("spike_distance", 20_000, 0.001),
        ("sines", 20_000, 0.0005),
        ("mackey_glass", 20, 1e-6),
        ("narma10", 20, 1e-6),
        ("memory_capacity", 20, 1e-9),
        ("multi_timescale", 5_000, 0.004),
        ("flip_flop", 10, 1e-6),
        ("perceptual_decision", 20_000, 0.014),
        ("context_decision", 20_000, 0.014),
        ("delayed_match", 20_000, 0.014),
        ("parametric_working_memory", 20_000, 0.014),
        ("ready_set_go", 20_000, 0.003),
        ("cognitive_battery", 4_000, 0.017),  # 4 standard errors
    ],
)
def test_the_trivial_answer_scores_the_baseline(name, count, tolerance):
    task = tasks.make(name)
    batch = task.draw(count, generator(0))
    assert abs(task.score(task.trivial(batch), batch) - task.baseline) < tolerance


def test_adding_by_its_definition():
    for length in (2, 3, 11, 100):
        batch = tasks.adding(length=length).draw(500, generator(0))
        values, marks = batch.inputs[..., 0], batch.inputs[..., 1]
        assert (marks[: length // 2].sum(dim=0) == 1).all()
        assert (marks[length // 2 :].sum(dim=0) == 1).all()
        assert torch.allclose((values * marks).sum(dim=0), batch.targets[:, 0], atol=1e-6)
        assert 0 <= float(values.min()) < float(values.max()) < 1
    where = batch.inputs[..., 1].double().mean(dim=1)
    assert (where > 0).all()  # every place is marked at some time


def test_copy_memory_by_its_definition():
    task = tasks.copy_memory(lag=15)
    batch = task.draw(50, generator(0))
    symbols = batch.inputs.argmax(dim=-1)
    assert symbols.shape[0] == 15 + 20
    assert (symbols[:10] < 8).all()
    assert (symbols[10:24] == 8).all()
    assert (symbols[24] == 9).all()
    assert (symbols[25:] == 8).all()
    assert (batch.targets[:25] == 8).all()
    assert torch.equal(batch.targets[25:], symbols[:10])
    assert task.baseline == pytest.approx(10 * math.log(8) / 35)


def test_flip_flop_by_its_definition():
    batch = tasks.flip_flop(length=30, bits=2, rate=0.2).draw(50, generator(0))
    assert set(batch.inputs.unique().tolist()) == {-1.0, 0.0, 1.0}
    for b in range(50):
        for bit in range(2):
            last = 0.0
            for t in range(30):
                last = batch.inputs[t, b, bit].item() or last
                assert batch.targets[t, b, bit] == last


def test_decisions_by_their_definitions():
    quiet = tasks.perceptual_decision(noise=0.0).draw(200, generator(0))
    assert torch.equal((quiet.inputs.mean(0)[:, 0] > 0).long(), quiet.targets)
    assert quiet.inputs.abs().unique().tolist() == pytest.approx([0.1, 0.2, 0.4])
    context = tasks.context_decision(noise=0.0).draw(200, generator(0))
    which = context.inputs[0, :, 2:].argmax(-1)
    assert torch.equal((context.inputs[-1, torch.arange(200), which] > 0).long(), context.targets)
    assert len(torch.unique(torch.stack([which, context.targets]), dim=1).T) == 4
    match = tasks.delayed_match(shown=2, delay=3).draw(200, generator(0))
    assert torch.equal((match.inputs[0] == match.inputs[-1]).all(-1).long(), match.targets)
    assert not match.inputs[2:5].any()
    larger = tasks.parametric_working_memory(shown=2, delay=3).draw(200, generator(0))
    assert torch.equal((larger.inputs[0] > larger.inputs[-1])[:, 0].long(), larger.targets)
    assert not larger.inputs[2:5].any()


def test_ready_set_go_by_its_definition():
    batch = tasks.ready_set_go().draw(300, generator(0))
    ready, set_, go = (x.argmax(0) for x in (batch.inputs[..., 0], batch.inputs[..., 1], batch.targets[..., 0]))
    assert (ready == 4).all()
    assert torch.equal(go - set_, set_ - ready)
    assert {int(interval) for interval in set_ - ready} == set(range(10, 21))
    assert batch.targets[-1].all()


def test_temporal_order_by_its_definition():
    task = tasks.temporal_order()
    batch = task.draw(3000, generator(0))
    assert set(batch.lengths.tolist()) == set(range(100, 111))
    for b in range(0, 3000, 10):
        written = "".join(task.symbols[k] for k in batch.inputs[: batch.lengths[b], b].argmax(dim=-1))
        assert re.fullmatch("E[abcdXY]+B", written)
        marks = [(position + 1, symbol) for position, symbol in enumerate(written) if symbol in "XY"]
        (first, one), (second, other) = marks
        assert 10 <= first <= 20
        assert 50 <= second <= 60
        assert ["XX", "XY", "YX", "YY"][batch.targets[b]] == one + other
    assert (torch.bincount(batch.targets) > 600).all()


def test_latch_by_its_definition():
    batch = tasks.latch(length=40, noise=0.3).draw(2000, generator(0))
    assert ((batch.inputs[:3, :, 0] > 0) == (batch.targets == 1)).all()
    assert (batch.inputs[:3].abs() == 1).all()
    assert float(batch.inputs[3:].std()) == pytest.approx(0.3, abs=0.005)


def test_serial_recall_by_its_definition():
    batch = tasks.serial_recall(items=4, delay=6, alphabet=5).draw(100, generator(0))
    symbols = batch.inputs.argmax(dim=-1)
    assert (symbols[4:10] == 5).all()
    assert (symbols[10] == 6).all()
    assert (symbols[11:] == 5).all()
    assert torch.equal(batch.targets[10:], symbols[:4])
    assert (batch.targets[:10] == 5).all()


def test_parity_by_its_definition():
    batch = tasks.parity(length=9).draw(50, generator(0))
    for b in range(50):
        ones = 0
        for t in range(9):
            ones += int(batch.inputs[t, b, 0])
            assert int(batch.targets[t, b]) == ones % 2


def legal_reber(string: str) -> bool:
    """The grammar of Reber 1967 as a chain of decisions, read off its picture."""
    if len(string) < 5 or string[0] != "B" or string[-1] != "E":
        return False
    body, place = string[1:-1], "start"
    moves = {
        ("start", "T"): "upper", ("start", "P"): "lower", ("upper", "S"): "upper", ("upper", "X"): "crossing",
        ("lower", "T"): "lower", ("lower", "V"): "right", ("crossing", "X"): "lower", ("crossing", "S"): "out",
        ("right", "P"): "crossing", ("right", "V"): "out",
    }  # fmt: skip
    for symbol in body:
        if (place, symbol) not in moves:
            return False
        place = moves[place, symbol]
    return place == "out"


def strings_of(batch) -> list[str]:
    strings = []
    for b, length in enumerate(batch.lengths.tolist()):
        inputs = [SYMBOLS[k] for k in batch.inputs[:length, b].argmax(dim=-1)]
        targets = [SYMBOLS[k] for k in batch.targets[:length, b]]
        assert inputs[1:] == targets[:-1]
        strings.append("".join([*inputs, targets[-1]]))
    return strings


def test_known_strings_of_the_reber_grammar():
    assert all(map(legal_reber, ["BTXSE", "BPVVE", "BTSXXTVVE", "BPTVPXVVE", "BPVPSE", "BTSSXXTTVPSE"]))
    assert not any(map(legal_reber, ["BTE", "BTXE", "BPXSE", "BTXSS", "TXSE", "BPTTE"]))


def test_reber_strings_are_legal_and_all_branches_are_taken():
    strings = strings_of(tasks.reber().draw(2000, generator(0)))
    assert all(map(legal_reber, strings))
    assert len(set(strings)) > 100
    assert {"BTXSE", "BPVVE"} <= set(strings)
    assert sum(string[1] == "T" for string in strings) / 2000 == pytest.approx(0.5, abs=0.05)


def test_embedded_reber_repeats_its_second_symbol():
    task = tasks.embedded_reber()
    batch = task.draw(2000, generator(0))
    for string in strings_of(batch):
        assert re.fullmatch(r"B([TP])(B.*E)\1E", string)
        assert legal_reber(string[2:-2])
    critical = task.critical(batch)
    assert torch.equal(critical.sum(dim=0), torch.ones(2000, dtype=torch.int64))
    assert torch.equal(critical.int().argmax(dim=0), batch.lengths - 2)


def test_continual_reber_is_one_string_after_another():
    batch = tasks.continual_reber(length=500).draw(20, generator(0))
    for string in strings_of(batch):
        assert len(string) == 501
        place = 0
        while found := re.compile(r"B([TP])(B[^E]*E)\1E").match(string, place):
            assert legal_reber(found[2])
            place = found.end()
        assert place > 400
        assert re.fullmatch(r"(B([TP](B[^E]*(E[TP]?)?)?)?)?", string[place:])  # the beginning of another
    assert (batch.lengths == 500).all()


@pytest.mark.parametrize("name", ["reber", "embedded_reber", "continual_reber"])
def test_knowing_the_grammar_is_legal_everywhere(name):
    task = tasks.make(name)
    batch = task.draw(500, generator(0))
    legal = task.legal(batch)
    came = torch.nn.functional.one_hot(batch.targets.clamp_min(0), 7).bool() & batch.mask[..., None]
    assert (legal | ~came).all()
    assert set(legal.sum(dim=-1)[batch.mask].unique().tolist()) == {1, 2}
    assert task.legality(legal.float(), batch) == 1
    assert task.legality(1 - legal.float(), batch) == 0
    if name == "reber":
        logits = torch.where(legal, 0.0, -1e9)
        assert task.score(logits, batch) == pytest.approx(task.optimum, abs=0.02)
    else:
        assert task.score(came.float(), batch) == 1


@pytest.mark.parametrize(("name", "letters"), [("anbn", "ab"), ("anbncn", "abc")])
def test_counting_by_its_definition(name, letters):
    task = tasks.make(name, low=1, high=7)
    batch = task.draw(300, generator(0))
    seen = set()
    for b, length in enumerate(batch.lengths.tolist()):
        inputs = "".join(("S" + letters)[k] for k in batch.inputs[:length, b].argmax(dim=-1))
        targets = "".join((letters + "T")[k] for k in batch.targets[:length, b])
        n = (length - 1) // len(letters)
        assert inputs == "S" + "".join(letter * n for letter in letters)
        assert targets == inputs[1:] + "T"
        seen.add(n)
    assert seen == set(range(1, 8))
    right = torch.nn.functional.one_hot(batch.targets.clamp_min(0), task.output_size).float()
    assert task.score(right, batch) == 1
    always_a = torch.zeros_like(right)
    always_a[..., 0] = 1
    assert task.score(always_a, batch) == 0
    assert tasks.make(name, low=2, high=5).baseline == 0
    late = right.clone()  # the first b may come at any time: a is as legal there
    reading = batch.inputs[..., 1] > 0
    late[reading] = torch.nn.functional.one_hot(torch.tensor(0), task.output_size).float()
    assert task.score(late, batch) == 1


def test_spike_distance_by_its_definition():
    task = tasks.spike_distance(offset=7, intervals=4)
    batch = task.draw(400, generator(0))
    extras = []
    for b in range(400):
        times = torch.nonzero(batch.inputs[:, b, 0])[:, 0]
        assert times[0] == 0
        assert len(times) == 5
        assert times[-1] == batch.lengths[b] - 1
        intervals = times.diff() - 7
        assert torch.allclose(batch.targets[times[1:], b, 0], intervals / 10)
        extras += intervals.tolist()
    assert set(extras) == set(range(11))
    assert task.score(batch.targets, batch) == 0


def test_padding_is_ignored_by_scores():
    batch = tasks.reber().draw(50, generator(0))
    outputs = torch.randn(*batch.targets.shape, 7)
    changed = torch.where(batch.mask[..., None], outputs, 1e6)
    assert tasks.reber().score(outputs, batch) == tasks.reber().score(changed, batch)
    assert (batch.targets[~batch.mask] == IGNORE).all()


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: tasks.make("addding"), UnknownNameError),
        (lambda: tasks.make("adding", lenght=3), OptionError),
        (lambda: tasks.adding(length=1), InputError),
        (lambda: tasks.copy_memory(lag=0), InputError),
        (lambda: tasks.latch(length=2), InputError),
        (lambda: tasks.anbn(low=5, high=4), InputError),
        (lambda: tasks.sines(components=6), InputError),
        (lambda: tasks.mackey_glass(delay=0.5), InputError),
        (lambda: tasks.memory_capacity(delays=10, length=10), InputError),
        (lambda: tasks.multi_timescale(period=2), InputError),
        (lambda: tasks.spike_distance(offset=0), InputError),
        (lambda: tasks.parity().batches(0), InputError),
        (lambda: tasks.sequential_mnist("absent").data, InputError),
        (lambda: tasks.sequential_mnist("absent", split="valid"), UnknownNameError),
    ],
)
def test_impossible_tasks_are_refused(make, error):
    with pytest.raises(error):
        make()


def _directions(ring: torch.Tensor) -> torch.Tensor:
    """(T, B): where a ring of units is active, by its largest unit."""
    return ring.argmax(-1)


@pytest.mark.parametrize("rule", ["go", "anti", "delay_go", "rt_anti", "dm2", "context_dm1", "multisensory_dm"])
def test_rules_of_the_battery_by_their_definitions(rule):
    """What is right follows from the inputs alone, without noise: at the last step, or before the delay."""
    ring = 32
    task = tasks.cognitive_battery(rules=(rule,), ring=ring, noise=0.0)
    batch = task.draw(200, generator(0))
    fixation, rings, answer = batch.inputs[..., 0], batch.inputs[..., 1 : 1 + 2 * ring], batch.targets
    first, second = rings[..., :ring], rings[..., ring:]
    weights = {"dm2": (0, 1), "context_dm1": (1, 0)}.get(rule, (1, 1))
    shown = (weights[0] * first + weights[1] * second).amax(0)  # (B, ring), whenever it was shown
    right = (shown.argmax(-1) + (ring // 2 if "anti" in rule else 0)) % ring
    off = (_directions(answer[-1, :, 1:]) - right + ring // 2) % ring - ring // 2
    assert off.abs().max() <= 1  # a direction between two units may be nearer to either
    assert (answer[-1, :, 0] < 0.5).all()
    assert (answer[: task.period, :, 0] > 0.5).all()
    moved = (answer[..., 0] < 0.5).int().argmax(0)  # the step of the answer
    comes = (rings.amax(-1) > 0).int().argmax(0)
    assert torch.equal(moved, comes if rule.startswith("rt") else comes + 2 * task.period)
    assert (fixation[-1] == (1 if rule.startswith("rt") else 0)).all()
    assert bool((rings[-1].amax(-1) > 0).all()) != rule.startswith("delay")
    assert task.score(answer, batch) == 1.0
    assert task.score(answer.roll(ring // 4, -1), batch) == 0.0


@pytest.mark.parametrize("rule", ["dms", "dnms"])
def test_matching_rules_answer_the_second_stimulus_or_keep_fixation(rule):
    ring = 32
    task = tasks.cognitive_battery(rules=(rule,), ring=ring, noise=0.0)
    batch = task.draw(200, generator(0))
    both = batch.inputs[..., 1 : 1 + ring] + batch.inputs[..., 1 + ring : 1 + 2 * ring]
    first = both[: 2 * task.period].amax(0)
    equal = (first - both[-1]).abs().amax(-1) < 1e-6
    assert 0.3 < equal.double().mean() < 0.7
    kept = batch.targets[-1, :, 0] > 0.5
    assert torch.equal(kept, ~equal if rule == "dms" else equal)
    assert torch.equal(_directions(batch.targets[-1, :, 1:])[~kept], _directions(both[-1])[~kept])
    assert task.score(batch.targets, batch) == 1.0
