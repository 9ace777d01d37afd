"""Hidden Markov models against every path written out, what Baum-Welch promises, and networks as emissions."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.errors import DtypeError, InputError, LengthsError, OptionError, ShapeError, UnknownNameError
from recurra.models import HMM, HybridHMM, left_right
from recurra.models.tagging.markov import MarkovChain
from recurra.models.tagging.schemes import AllowedTransitions

BACKENDS = pytest.mark.parametrize("backend", ["reference", "auto"])
LENGTHS = torch.tensor([5, 2, 4])


def observed(model: HMM) -> Tensor:
    if hasattr(model.emission, "logs"):
        return torch.randint(0, model.emission.count, (5, 3))
    return torch.randn(5, 3, model.emission.size, dtype=torch.float64)


def every_path(model: HMM, x: Tensor) -> dict[tuple[int, ...], float]:
    """Path of states → p(x, path) of one sequence, by the definition, in plain probabilities."""
    A, pi = model.transitions.exp().tolist(), model.start.exp().tolist()
    good_end = (model.end == 0).tolist()
    b = model.emission.log_likelihood(x[:, None]).squeeze(1).exp().tolist()
    found = {}
    for path in itertools.product(range(model.states), repeat=len(x)):
        p = pi[path[0]] * math.prod(A[i][j] for i, j in itertools.pairwise(path)) * good_end[path[-1]]
        found[path] = p * math.prod(b[t][s] for t, s in enumerate(path))
    return found


@BACKENDS
@pytest.mark.parametrize("topology", ["ergodic", "left_right", left_right(3, jump=2)], ids=["ergodic", "one", "two"])
@pytest.mark.parametrize("kind", [{"symbols": 4}, {"features": 2}], ids=str)
def test_is_the_sum_over_every_path(backend: str, topology: str | AllowedTransitions, kind: dict):
    model = HMM(3, topology=topology, **kind).double()
    x = observed(model)
    with set_backend(backend):
        values, posteriors, (paths, best) = model(x, LENGTHS), model.posteriors(x, LENGTHS), model.viterbi(x, LENGTHS)
    for b, length in enumerate(LENGTHS.tolist()):
        every = every_path(model, x[:length, b])
        total = sum(every.values())
        if total == 0:  # two steps are too few to come from the first of three states to the last
            assert (length, values[b].item(), best[b].item()) == (2, -math.inf, -math.inf)
            continue
        assert values[b].item() == pytest.approx(math.log(total), rel=1e-12)
        top = max(every, key=every.__getitem__)
        assert paths[:, b].tolist() == [*top, *[-100] * (5 - length)]
        assert best[b].item() == pytest.approx(math.log(every[top]), rel=1e-12)
        for t, s in itertools.product(range(length), range(3)):
            share = sum(p for path, p in every.items() if path[t] == s) / total
            assert posteriors[t, b, s].item() == pytest.approx(share, rel=1e-10, abs=1e-14)


def expected_counts(model: HMM, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of first states, of transitions, of symbols in states: from every path of one sequence."""
    every = every_path(model, x)
    total = sum(every.values())
    first, moves = torch.zeros(3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    seen = torch.zeros(3, model.emission.count, dtype=torch.float64)
    for path, p in every.items():
        first[path[0]] += p / total
        for i, j in itertools.pairwise(path):
            moves[i, j] += p / total
        for t, s in enumerate(path):
            seen[s, x[t]] += p / total
    return first, moves, seen


@BACKENDS
def test_one_iteration_is_the_textbook(backend: str):
    model = HMM(3, symbols=4).double()
    x = torch.randint(0, 4, (5, 3))
    each = [expected_counts(model, x[:n, b]) for b, n in enumerate(LENGTHS.tolist())]
    sums = [sum(parts) for parts in zip(*each, strict=True)]
    with set_backend(backend):
        history = model.fit(x, LENGTHS, iterations=1, fresh=False)
    assert len(history) == 1
    for table, counts in zip((model.start, model.transitions, model.emission.logs), sums, strict=True):
        torch.testing.assert_close(table.exp(), counts / counts.sum(-1, keepdim=True), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [{"symbols": 6}, {"features": 2}], ids=str)
@pytest.mark.parametrize("topology", ["ergodic", "left_right"])
def test_learning_never_loses(kind: dict, topology: str):
    source, model = HMM(3, topology=topology, **kind).double(), HMM(3, topology=topology, **kind).double()
    x, _ = source.sample(30, count=20)
    with set_backend("auto"):
        history = model.fit(x, iterations=40)
        final = model(x).sum().item()
    assert len(history) > 3
    for before, after in itertools.pairwise([*history, final]):
        assert after >= before - 1e-9 * abs(before)
    assert history[-1] > history[0]
    torch.testing.assert_close(model.transitions.exp().sum(1), torch.ones(3, dtype=torch.float64))
    forbidden = ~left_right(3).transitions if topology == "left_right" else torch.zeros(3, 3, dtype=torch.bool)
    assert not model.transitions.exp()[forbidden].any()


def test_a_known_model_is_found_again():
    source = HMM(2, features=1).double()
    source.transitions.copy_(torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log())
    source.emission.mean.copy_(torch.tensor([[-2.0], [2.0]]))
    x, states = source.sample(400, count=20)
    model = HMM(2, features=1).double()
    with set_backend("auto"):
        model.fit(x)
        order = model.emission.mean.flatten().argsort()
        found = model.transitions.exp()[order][:, order]
        path = order.argsort()[model.viterbi(x)[0]]
    torch.testing.assert_close(found, source.transitions.exp(), rtol=0, atol=0.02)
    torch.testing.assert_close(model.emission.mean[order], source.emission.mean, rtol=0, atol=0.06)
    torch.testing.assert_close(model.emission.variance[order], torch.ones(2, 1, dtype=torch.float64), rtol=0, atol=0.1)
    assert (path == states).double().mean() > 0.97


def test_samples_follow_the_model():
    model = HMM(2, symbols=2, topology=left_right(2)).double()
    x, states = model.sample(3, count=20_000)
    assert bool((states[0] == 0).all())
    assert bool((states[-1] == 1).all())
    assert bool((states.diff(dim=0) >= 0).all())
    every = {}
    for symbols in itertools.product(range(2), repeat=3):
        every[symbols] = sum(every_path(model, torch.tensor(symbols)).values())
    total = sum(every.values())  # of sequences whose path ends in the last state
    seen = [tuple(column) for column in x.T.tolist()]
    for symbols, p in every.items():
        share, p = seen.count(symbols) / len(seen), p / total
        assert abs(share - p) < 4.5 * math.sqrt(p * (1 - p) / len(seen))


def test_padding_is_not_read():
    for kind, junk in (({"symbols": 4}, 99), ({"features": 2}, math.nan)):
        model = HMM(3, **kind).double()
        x = observed(model)
        other = x.clone()
        other[torch.arange(5)[:, None] >= LENGTHS] = junk
        assert torch.equal(model(x, LENGTHS), model(other, LENGTHS))
        twin = HMM(3, **kind).double()
        twin.load_state_dict(model.state_dict())
        assert model.fit(x, LENGTHS, 3, fresh=False) == twin.fit(other, LENGTHS, 3, fresh=False)


def test_bad_models_and_observations():
    with pytest.raises(OptionError, match="one of the two"):
        HMM(3)
    with pytest.raises(UnknownNameError, match="did you mean 'left_right'"):
        HMM(3, symbols=2, topology="left-right")
    with pytest.raises(ShapeError, match="topology"):
        HMM(3, symbols=2, topology=left_right(4))
    model, frames = HMM(3, symbols=2, topology="left_right"), HMM(3, features=2)
    with pytest.raises(ShapeError, match="symbols"):
        model(torch.zeros(3, 2, 2, dtype=torch.int64))
    with pytest.raises(DtypeError, match="whole numbers"):
        model(torch.zeros(3, 2))
    with pytest.raises(InputError, match="x: got 7, expected symbols from 0 to 1"):
        model(torch.full((3, 2), 7))
    with pytest.raises(InputError, match="x: got sequence 1, which no path"):
        model.fit(torch.ones(5, 2, dtype=torch.int64), [5, 2])
    with pytest.raises(InputError, match="not finite"):
        frames(torch.full((3, 2, 2), math.nan))
    with pytest.raises(ShapeError, match=r"\(T, B, 2\)"):
        frames(torch.zeros(3, 2, 3))


# ---------------------------------------------------------------------------------------------------- the hybrid


class Given(nn.Module):
    """A network that says what it was told to."""

    def __init__(self, scores: Tensor):
        super().__init__()
        self.scores = scores

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.scores


def test_counts_are_frequencies():
    markov = MarkovChain(3, smoothing=0.0).double()
    markov.count([torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1])])
    torch.testing.assert_close(markov.prior.exp(), torch.tensor([3, 3, 1]) / 7.0, check_dtype=False)
    torch.testing.assert_close(markov.start.exp(), torch.tensor([1.0, 0, 0]), check_dtype=False)
    torch.testing.assert_close(markov.end.exp(), torch.tensor([0, 1 / 3, 1]), check_dtype=False)
    rows = torch.tensor([[1 / 3, 2 / 3, 0], [0, 1 / 3, 1 / 3], [0, 0, 0]])  # with its end, a row sums to one
    torch.testing.assert_close(markov.transitions.exp(), rows, check_dtype=False)


@BACKENDS
def test_scaled_likelihoods_by_every_path(backend: str):
    scores = torch.randn(5, 3, 3, dtype=torch.float64)
    hybrid = HybridHMM(Given(scores), 3, scale=0.7).double()
    hybrid.count(torch.randint(0, 3, (40, 6)))
    x, m = torch.zeros(5, 3, 1), hybrid.markov
    with set_backend(backend):
        found, posteriors = hybrid.decode(x, LENGTHS), hybrid.posteriors(x, LENGTHS)
    A, pi, end, prior = m.transitions.exp(), m.start.exp(), m.end.exp(), m.prior.exp()
    likelihood = scores.softmax(-1) / prior**0.7
    for b, length in enumerate(LENGTHS.tolist()):
        every = {}
        for path in itertools.product(range(3), repeat=length):
            p = pi[path[0]] * end[path[-1]] * math.prod(A[i, j] for i, j in itertools.pairwise(path))
            every[path] = float(p * math.prod(likelihood[t, b, s] for t, s in enumerate(path)))
        assert tuple(found[:length, b].tolist()) == max(every, key=every.__getitem__)
        shares = [[sum(p for q, p in every.items() if q[t] == s) for s in range(3)] for t in range(length)]
        expected = torch.tensor(shares, dtype=torch.float64) / sum(every.values())
        torch.testing.assert_close(posteriors[:length, b], expected, rtol=1e-10, atol=1e-12)


def test_a_network_that_knows_nothing_leaves_the_chain():
    hybrid = HybridHMM(Given(torch.zeros(6, 1, 3, dtype=torch.float64)), 3).double()
    hybrid.markov.count([torch.tensor([0, 0, 1, 1, 2, 2])] * 5)
    hybrid.markov.prior.fill_(-math.log(3))
    pure = hybrid.markov
    path = hybrid.decode(torch.zeros(6, 1, 1))[:, 0].tolist()
    scores = {
        q: float(pure.start[q[0]] + pure.end[q[-1]] + sum(pure.transitions[i, j] for i, j in itertools.pairwise(q)))
        for q in itertools.product(range(3), repeat=6)
    }
    assert scores[tuple(path)] == pytest.approx(max(scores.values()))


def test_left_right_forces_the_order():
    scores = 5 * torch.randn(12, 4, 3, dtype=torch.float64)
    hybrid = HybridHMM(Given(scores), 3, left_right(3)).double()
    path = hybrid.decode(torch.zeros(12, 4, 1))
    assert bool((path[0] == 0).all())
    assert bool((path[-1] == 2).all())
    assert set(path.diff(dim=0).flatten().tolist()) == {0, 1}


@BACKENDS
def test_alignment_is_the_best_way_through_an_order(backend: str):
    scores, order = torch.randn(6, 1, 3, dtype=torch.float64), [2, 0, 0, 1]
    hybrid = HybridHMM(Given(scores), 3).double()
    hybrid.count(torch.randint(0, 3, (40, 6)))
    with set_backend(backend):
        found = hybrid.align(torch.zeros(6, 1, 1), [order], [6])[:, 0].tolist()
    m, likelihood = hybrid.markov, hybrid.markov.chain(scores, torch.tensor([6])).emissions[:, 0]
    every = {}
    for cuts in itertools.combinations(range(1, 6), 3):
        bounds = [0, *cuts, 6]
        path = [order[k] for k in range(4) for _ in range(bounds[k], bounds[k + 1])]
        passed = sum(m.transitions[i, j] for i, j in itertools.pairwise(path))
        every[tuple(path)] = float(passed + sum(likelihood[t, s] for t, s in enumerate(path)))
    assert tuple(found) == max(every, key=every.__getitem__)


@pytest.mark.slow
def test_embedded_realignment_finds_the_boundaries():
    """Sounds of unequal length whose order alone is known: each round of training knows better when they were."""
    torch.manual_seed(0)
    centres, orders, truths, frames = torch.randn(4, 6), [], [], []
    for _ in range(120):
        order = torch.randperm(4)[:3].tolist()
        spans = torch.randint(2, 12, (3,)).tolist()
        truth = [state for state, span in zip(order, spans, strict=True) for _ in range(span)]
        orders.append(order)
        truths.append(torch.tensor(truth))
        frames.append(centres[truth] + 0.5 * torch.randn(len(truth), 6))
    x, lengths = nn.utils.rnn.pad_sequence(frames), torch.tensor([len(one) for one in frames])

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = rc.LSTM(6, 6, bidirectional=True)
            self.readout = rc.Readout(self.recurrent, 4)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            return self.readout(self.recurrent(x, lengths=lengths)[0])

    hybrid = HybridHMM(Network(), 4)
    targets = nn.utils.rnn.pad_sequence(  # at first: every sound equally long
        [
            torch.tensor([order[3 * t // int(n)] for t in range(int(n))])
            for order, n in zip(orders, lengths, strict=True)
        ],
        padding_value=-100,
    )
    truth = nn.utils.rnn.pad_sequence(truths, padding_value=-100)

    def right() -> float:
        return ((targets == truth) & (truth >= 0)).sum().item() / int(lengths.sum())

    shares = [right()]
    with set_backend("auto"):
        optimizer = torch.optim.Adam(hybrid.parameters(), lr=0.02)
        for _ in range(8):
            for _ in range(10):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(hybrid(x, lengths).flatten(0, 1), targets.flatten())
                loss.backward()
                optimizer.step()
            targets = hybrid.realign(x, orders, lengths)
            shares.append(right())
    assert shares[0] < 0.85
    assert shares[-1] > 0.97, shares


def test_bad_hybrids():
    hybrid = HybridHMM(Given(torch.zeros(3, 2, 4)), 5)
    x = torch.zeros(3, 2, 1)
    with pytest.raises(ShapeError, match=r"network output: got \(3, 2, 4\)"):
        hybrid(x)
    hybrid = HybridHMM(Given(torch.zeros(3, 2, 4)), 4)
    with pytest.raises(LengthsError, match=r"orders\[1\]: got 4 states, expected at most 3"):
        hybrid.align(x, [[0], [0, 1, 2, 3]])
    with pytest.raises(InputError, match="states from 0 to 3"):
        hybrid.align(x, [[0], [9]])
    with pytest.raises(InputError, match="orders: got 1 of them, expected 2"):
        hybrid.align(x, [[0]])
    with pytest.raises(InputError, match="sequence 0: got 4"):
        hybrid.count(torch.full((3, 2), 4))
