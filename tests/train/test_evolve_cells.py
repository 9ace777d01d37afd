"""Evolved cells: graphs that are ordinary cells, mutations that keep them so, and NSGA-II."""

import json
import random

import pytest
import torch
from cases import Case
from helpers import assert_close, run

import recurra as rc
from recurra.cell import REGISTRY
from recurra.cells import canonical_names
from recurra.engine.trace import trace
from recurra.train import Evolution, Genome, Language, Trial, evolve_cells, genome_of, lstm_genome, rnn_genome
from recurra.train.evolve_cells import languages, try_cell, width
from recurra.train.genome import Node
from recurra.train.genome_of_cell import read_genome
from recurra.train.mutations import MUTATIONS, Draft, _Impossible, mutate
from recurra.train.nsga import crowding, dominates, fronts, select


def readable(name: str) -> Genome | None:
    """The genome of a registered cell, if it is one of operations."""
    try:
        return read_genome(rc.registry()[name])[0]
    except rc.OptionError:
        return None


@pytest.mark.parametrize("forget", [True, False])
def test_the_lstm_genome_is_the_lstm(forget: bool) -> None:
    cell = lstm_genome(forget).cell_class()(3, 4).double()
    known = rc.registry()["lstm" if forget else "original_lstm"](3, 4).double()
    with torch.no_grad():
        for gate in "ifgo" if forget else "igo":
            for name in ("U", "W", "b"):
                getattr(getattr(known, gate), name).copy_(getattr(cell.get_submodule(f"a_{gate}"), name).normal_())
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    for found, expected in zip(run(cell, x), run(known, x), strict=True):
        assert_close(found, expected, 1e-14)


def walk(steps: int, seed: int = 0) -> list[Genome]:
    chance, genome, seen = random.Random(seed), lstm_genome(), []
    for _ in range(steps):
        genome = mutate(genome, chance)
        genome = lstm_genome() if len(genome.nodes) > 30 else genome
        seen.append(genome)
    return seen


def test_mutants_are_valid_cells() -> None:
    """Genome checks order and names when made; here every tenth mutant runs and has a gradient."""
    for genome in walk(100)[::10]:
        cell = genome.cell_class()(2, 3).double()
        x = torch.randn(4, 2, 2, dtype=torch.float64)
        y = run(cell, x)[0]
        assert y.shape == (4, 2, 3)
        y.sum().backward()
        assert sum(p.numel() for p in cell.parameters()) == genome.weights(2, 3)


def test_cycles_only_through_states() -> None:
    for genome in walk(60, seed=1):
        known = {"x", "h", *genome.memories}
        for name, node in genome.nodes.items():
            assert known.issuperset(node.inputs)
            known.add(name)


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_changes_something(name: str) -> None:
    changed = 0
    for seed in range(20):
        draft = Draft(lstm_genome())
        try:
            MUTATIONS[name](draft, random.Random(seed))
            changed += draft.finish() != lstm_genome()
        except (_Impossible, rc.RecurraError):
            continue
    assert changed >= 3


def test_a_mutant_traces_and_prints_its_equations() -> None:
    genome = walk(5, seed=2)[-1]
    cell = genome.cell_class()(3, 4)
    assert set(trace(cell).named) >= set(genome.nodes) - {genome.output}
    text = genome.equations()
    assert r"\sigma" in text or r"\tanh" in text
    assert genome.source().startswith("def step(self, x, h")


def test_saved_registered_and_built_by_name(tmp_path) -> None:
    genome = walk(3, seed=4)[-1]
    genome.save(tmp_path / "cell.json")
    again = Genome.load(tmp_path / "cell.json")
    assert again == genome
    name = f"evolved_{genome.digest}"
    again.register(name)
    try:
        y, _ = rc.layer(name, 2, 3)(torch.zeros(4, 1, 2))
        assert y.shape == (4, 1, 3)
    finally:
        REGISTRY.pop(name)


@pytest.mark.parametrize(
    "broken",
    [
        {"nodes": [["a", "affine", ["x", "b"], 0.0]], "output": "a", "memories": {}},
        {"nodes": [["a", "import os", ["x"], 0.0]], "output": "a", "memories": {}},
        {"nodes": [["a) or exec('x", "affine", ["x"], 0.0]], "output": "a", "memories": {}},
        {"nodes": [["a", "affine", ["x"], 0.0]], "output": "b", "memories": {}},
        {"nodes": [["a", "tanh", ["x"], 0.0]], "output": "a", "memories": {}},
        {"nodes": [["parameters", "affine", ["x"], 0.0]], "output": "parameters", "memories": {}},
        {"nodes": [["a", "affine", ["x"], 0.0]], "output": "a", "memories": {"c); import os": "a"}},
        {"nodes": 3},
        [],
    ],
)
def test_a_broken_file_is_refused(tmp_path, broken) -> None:
    path = tmp_path / "cell.json"
    path.write_text(json.dumps(broken))
    with pytest.raises(rc.RecurraError, match="genome"):
        Genome.load(path)


def test_nsga() -> None:
    points = [(1, 4), (2, 2), (4, 1), (3, 3), (4, 4), (2, 2.5)]
    assert dominates((1, 1), (1, 2))
    assert not dominates((1, 1), (1, 1))
    assert fronts(points) == [[0, 1, 2], [5], [3], [4]]
    room = crowding([(0, 3), (1, 1.5), (3, 0)], [0, 1, 2])
    assert room[0] == room[2] == float("inf")
    assert room[1] == pytest.approx(2.0)
    assert set(select(points, 2)) == {0, 2}  # the ends of the front
    assert select(points, 4)[3] == 5


def test_equal_weights() -> None:
    for genome in (lstm_genome(), rnn_genome(), *walk(5)):
        size = width(genome, languages()[0], 300)
        total = lambda s, g=genome: g.weights(3, s) + 3 * (s + 1)  # noqa: E731
        assert total(size) <= 300 < total(size + 1)


def by_size(genome: Genome, language: Language, trial: Trial, seed: int) -> tuple[float, float]:
    """A stand-in for training: fewer nodes are better in one language, more memories in the other."""
    return (float(len(genome.nodes)) if language.name == "anbn" else -float(len(genome.memories))), 0.0


def test_evolution_goes_where_it_is_judged_and_resumes_exactly() -> None:
    straight = Evolution(population=6, evaluate=by_size, seed=3)
    for _ in range(6):
        straight.generation()
    assert straight.best(0).objectives[0] <= min(m.objectives[0] for m in straight.founders)
    assert straight.best(1).objectives[1] < min(m.objectives[1] for m in straight.founders)
    first, second = (Evolution(population=6, evaluate=by_size, seed=3) for _ in range(2))
    for _ in range(3):
        first.generation()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for _ in range(3):
        second.generation()
    assert second.state_dict() == straight.state_dict()
    assert all(not dominates(m.objectives, f.objectives) for f in straight.front for m in straight.members)


def test_a_run_with_real_training() -> None:
    trial = Trial(weights=120, steps=2, batch=4)
    evolution = evolve_cells(1, population=3, trial=trial, languages=languages()[:1])
    assert len(evolution.members) == 3
    assert all(0 < m.objectives[0] < 10 for m in evolution.members)


@pytest.mark.slow
def test_training_teaches_the_lstm_genome_a_language() -> None:
    before = try_cell(lstm_genome(), languages()[0], Trial(steps=1), 0)[0]
    after = try_cell(lstm_genome(), languages()[0], Trial(steps=150, batch=16), 0)[0]
    assert after < 0.7 * before


def test_bad_nodes() -> None:
    with pytest.raises(rc.RecurraError, match="each input once"):
        Genome({"a": Node("affine", ("x", "x"))}, "a", {})
    with pytest.raises(rc.RecurraError, match="1 to 1 inputs"):
        Genome({"a": Node("affine", ("x",)), "b": Node("tanh", ("a", "h"))}, "b", {})


def test_the_first_tournament_prefers_the_better() -> None:
    """The best of eight is the winner of 15 of 64 pairs, the worst of one, however the first population is ordered."""
    errors = iter([5.0, 7.0, 3.0, 1.0, 8.0, 2.0, 6.0, 4.0, *[9.0] * 1000])
    evolution = Evolution(population=8, languages=languages()[:1], evaluate=lambda *_: (next(errors), 0.0))
    evolution.generation()
    drawn = [evolution._tournament().objectives[0] for _ in range(2000)]
    best, worst = min(drawn), max(m.objectives[0] for m in evolution.members)
    assert drawn.count(best) / 2000 == pytest.approx(15 / 64, abs=0.04)  # four standard deviations
    assert drawn.count(worst) / 2000 == pytest.approx(1 / 64, abs=0.012)
    assert [m.objectives for m in evolution.members] == sorted(m.objectives for m in evolution.members)


GENOMES = [name for name in canonical_names() if isinstance(readable(name), Genome)]


def test_most_cells_can_start_an_evolution() -> None:
    assert len(GENOMES) >= 75
    assert {"lif", "srm", "fast_grnn", "lem", "sgu", "nbrc", "min_lstm", "ctrnn", "cornn", "full_gate_lstm"} <= {
        *GENOMES
    }


@pytest.mark.parametrize("name", GENOMES)
def test_a_cell_as_a_genome_computes_what_the_cell_does(name: str) -> None:
    """With the cell's weights, each in one place; and mutants of it are cells."""
    cell = Case(name).cell()
    genome, origin = read_genome(type(cell))
    twin = genome.cell_class()(3, 4).double()
    used = [weight for weights in origin.values() for weight in weights.values()]
    assert sorted(used) == sorted(dict(cell.named_parameters()))
    with torch.no_grad():
        for node, weights in origin.items():
            if (operation := genome.nodes[node].operation) != "affine":
                getattr(twin, node).copy_(cell.get_parameter(weights["scale" if operation == "scale" else "vector"]))
                continue
            affine = getattr(twin, node)
            affine.b.copy_(cell.get_parameter(weights["bias"])) if "bias" in weights else affine.b.zero_()
            for matrix, source in affine.operands.items():
                getattr(affine, matrix).copy_(cell.get_parameter(weights[source]))
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    ours, theirs = (rc.Recurrent(type(c), 3, 4).double() for c in (cell, twin))
    ours.cells[0].load_state_dict(cell.state_dict()), theirs.cells[0].load_state_dict(twin.state_dict())
    chance = random.Random(0)
    with rc.set_backend("reference"):
        assert_close(theirs(x)[0], ours(x)[0], 1e-12)
        for _ in range(3):
            genome = mutate(genome, chance)
            y = rc.Recurrent(genome.cell_class(), 3, 4)(torch.randn(3, 2, 3))[0]
            assert y.shape == (3, 2, 4)
            y.sum().backward()


def test_a_genome_with_thresholds_and_learned_numbers_is_compiled() -> None:
    for name in ("lif", "fast_rnn"):
        layer = rc.Recurrent(genome_of(name).cell_class(), 3, 4).double()
        x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
        compiled = layer(x)[0]
        with rc.set_backend("reference"):
            expected = layer(x)[0]
        assert_close(compiled, expected, 1e-12)
        found, wanted = (torch.autograd.grad(y.sum(), x)[0] for y in (compiled, expected))
        assert_close(found, wanted, 1e-12)
        assert r"\begin" in layer.cells[0].equations()


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("ltc", "a matrix f.U that several products share"),
        ("izhikevich", "states that do not start from 0"),
        ("orthogonal_rnn", "weights that are derived"),
        ("mlstm", "states of other sizes"),
    ],
)
def test_a_cell_with_other_parts_has_no_genome_of_operations(name: str, what: str) -> None:
    with pytest.raises(rc.OptionError, match=what):
        read_genome(rc.registry()[name])


def test_evolution_starts_from_names() -> None:
    evolution = Evolution(population=3, start=["gru", "mgu"], evaluate=lambda *_: (0.5, 0.5))
    evolution.generation()
    assert [m.genome for m in evolution.founders][:2] == [genome_of("gru"), genome_of("mgu")]
    for _ in range(5):
        evolution.generation()
    assert rc.Recurrent(evolution.best().genome.cell_class(), 3, 4)(torch.randn(5, 2, 3))[0].shape == (5, 2, 4)


WHOLE = [name for name in canonical_names() if name not in GENOMES]


@pytest.mark.parametrize("name", WHOLE)
def test_any_other_cell_is_one_node_of_a_genome(name: str) -> None:
    """With its states, starts and time; mutants change what is around it, and learn."""
    genome = genome_of(name)
    assert genome.cells() == {"n0": f"cell:{name}"}
    assert Genome.from_dict(json.loads(json.dumps(genome.to_dict()))) == genome
    size = width(genome, languages()[0], 400)
    layer = rc.Recurrent(genome.cell_class(), 3, 4).double()
    node, known = layer.cells[0].n0, rc.layer(name, 3, 4).double()
    known.cells[0].load_state_dict(node.cell.state_dict())
    x, chance = torch.rand(5, 2, 3, dtype=torch.float64), random.Random(0)
    assert genome.weights(3, 4) == sum(weight.numel() for weight in layer.parameters())
    assert size == 1 or genome.weights(3, size) + 3 * (size + 1) <= 400
    with rc.set_backend("reference"):
        expected = known(x)[0]
        assert_close(layer(x)[0], expected if node.readout is None else node.readout(expected), 1e-12)
        for _ in range(3):
            genome = mutate(genome, chance)
            mutant = rc.Recurrent(genome.cell_class(), 3, 4)
            mutant(x.float())[0].sum().backward()
            assert any(bool(weight.grad.any()) for weight in mutant.parameters() if weight.grad is not None)


@pytest.mark.parametrize("name", ["delay_rnn", "clockwork", "gru_d"])
def test_a_cell_in_a_genome_starts_again_at_resets(name: str) -> None:
    layer, x = rc.Recurrent(genome_of(name).cell_class(), 3, 4).double(), torch.rand(6, 2, 3, dtype=torch.float64)
    resets = torch.zeros(6, 2, dtype=torch.bool)
    resets[3, 0] = True
    assert_close(layer(x, resets=resets)[0][:, :1], torch.cat([layer(x[:3, :1])[0], layer(x[3:, :1])[0]]), 1e-12)


def test_a_class_that_is_not_registered_must_be_of_operations() -> None:
    class Roll(rc.Cell):
        def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return torch.roll(h, 1, -1)

    with pytest.raises(rc.OptionError, match="Roll, which has"):
        genome_of(Roll)


def test_names_in_a_genome_keep_clear_of_the_states_of_its_cells() -> None:
    with pytest.raises(rc.RecurraError, match="names of their own"):
        Genome({"n_h": Node("affine", ("x",)), "n": Node("cell:gru", ("n_h",))}, "n", {})
    with pytest.raises(rc.RecurraError, match="did you mean 'gru'"):
        Genome({"n": Node("cell:gruu", ("x",))}, "n", {})
