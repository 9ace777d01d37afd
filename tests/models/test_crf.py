"""Conditional random fields against every path written out, against pytorch-crf, and against their own plain loops."""

import itertools
import math

import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.errors import DtypeError, InputError, LengthsError, OptionError, ShapeError, UnknownNameError
from recurra.models.tagging import chain_kernel
from recurra.models.tagging.chain import Chain

BACKENDS = pytest.mark.parametrize("backend", ["reference", "auto"])
LENGTHS = torch.tensor([5, 1, 3])


def field(tags: int = 4, **options) -> rc.CRF:
    crf = rc.CRF(tags, **options).double()
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_()
    return crf


def case(steps: int = 5, batch: int = 3, tags: int = 4) -> tuple[Tensor, Tensor]:
    return 2 * torch.randn(steps, batch, tags, dtype=torch.float64), torch.randint(0, tags, (steps, batch))


def every_path(crf: rc.CRF, emissions: Tensor, length: int) -> dict[tuple[int, ...], float]:
    """Path → score, for one sequence (T, K), by the definition."""
    A, start, end = (part.tolist() for part in crf.scores())
    f, found = emissions.tolist(), {}
    for path in itertools.product(range(crf.tags), repeat=length):
        inner = sum(f[t][k] for t, k in enumerate(path)) + sum(A[j][k] for j, k in itertools.pairwise(path))
        found[path] = start[path[0]] + inner + end[path[-1]]
    return found


def log_sum(values) -> float:
    values = list(values)
    top = max(values)
    return top + math.log(sum(math.exp(v - top) for v in values))


@BACKENDS
@pytest.mark.parametrize("forbidden", [[], [(0, 1), (2, 2), (rc.models.START, 3), (1, rc.models.STOP)]], ids=str)
def test_is_the_sum_over_every_path(backend: str, forbidden: list):
    with set_backend(backend):
        crf = field(forbidden=forbidden)
        emissions, tags = case()
        likelihood, total = crf(emissions, tags, LENGTHS), crf.log_partition(emissions, LENGTHS)
        marginals, (best, score) = crf.marginals(emissions, LENGTHS), crf.viterbi(emissions, LENGTHS)
        for b, length in enumerate(LENGTHS.tolist()):
            paths = every_path(crf, emissions[:, b], length)
            expected = log_sum(paths.values())
            assert total[b].item() == pytest.approx(expected, rel=1e-13)
            own = paths[tuple(tags[:length, b].tolist())]
            assert likelihood[b].item() == pytest.approx(own - expected, rel=1e-12, abs=1e-12)
            top = max(paths, key=paths.__getitem__)
            assert best[:, b].tolist() == [*top, *[-100] * (5 - length)]
            assert score[b].item() == pytest.approx(paths[top], rel=1e-13)
            assert crf.decode(emissions, LENGTHS)[b] == list(top)
            for t, k in itertools.product(range(length), range(4)):
                share = sum(math.exp(v - expected) for path, v in paths.items() if path[t] == k)
                assert marginals[t, b, k].item() == pytest.approx(share, rel=1e-10, abs=1e-14)
            assert not marginals[length:, b].any()


@BACKENDS
def test_is_pytorch_crf(backend: str):
    theirs = pytest.importorskip("torchcrf").CRF(20).double()
    ours = rc.CRF(20).double()
    ours.load_state_dict(theirs.state_dict())
    emissions, tags = case(31, 6, 20)
    lengths = torch.tensor([31, 1, 30, 17, 2, 8])
    mask = torch.arange(31)[:, None] < lengths
    leaves = [emissions.clone().requires_grad_() for _ in range(2)]
    with set_backend(backend):
        likelihood = ours(leaves[0], tags, lengths)
        expected = theirs(leaves[1], tags, mask, reduction="none")
        torch.testing.assert_close(likelihood, expected, rtol=1e-13, atol=1e-13)
        likelihood.sum().backward()
        expected.sum().backward()
        twins = [theirs.transitions, theirs.start_transitions, theirs.end_transitions]
        for own, other in [leaves, *zip(ours.parameters(), twins, strict=True)]:
            torch.testing.assert_close(own.grad, other.grad, rtol=1e-12, atol=1e-12)
        assert ours.decode(emissions, lengths) == theirs.decode(emissions, mask)


def test_the_gradient_is_marginals_less_the_path():
    crf, (emissions, tags) = field(), case()
    emissions.requires_grad_()
    with set_backend("auto"):
        (gradient,) = torch.autograd.grad(-crf(emissions, tags, LENGTHS).sum(), emissions)
        one_hot = torch.nn.functional.one_hot(tags, 4) * (torch.arange(5)[:, None] < LENGTHS)[..., None]
        torch.testing.assert_close(gradient, crf.marginals(emissions, LENGTHS) - one_hot, rtol=1e-13, atol=1e-13)


@BACKENDS
def test_first_and_second_derivatives(backend: str):
    crf, (emissions, tags) = field(2), case(3, 2, 2)
    leaves = [value.detach().requires_grad_() for value in (emissions, crf.transitions, crf.start, crf.end)]
    lengths = torch.tensor([3, 2])
    with set_backend(backend):
        for given in (None, tags):

            def total(*parts: Tensor, given: Tensor | None = given) -> Tensor:
                return chain_kernel.log_partition(Chain(*parts, lengths), given)

            assert torch.autograd.gradcheck(total, leaves, eps=1e-6, atol=1e-5, rtol=1e-3)
            assert torch.autograd.gradgradcheck(total, leaves, eps=1e-6, atol=1e-5, rtol=1e-3)


def test_marginals_can_be_differentiated():
    crf, (emissions, _) = field(3), case(4, 2, 3)
    with set_backend("auto"):
        assert torch.autograd.gradcheck(lambda e: crf.marginals(e, [4, 3]), emissions.requires_grad_())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 2e-4)], ids=str)
@pytest.mark.parametrize("shape", [(1, 2, 3), (9, 3, 33), (50, 4, 16), (200, 2, 5)], ids=str)
def test_the_compiled_loops_are_the_plain_ones(dtype: torch.dtype, tolerance: float, shape: tuple[int, int, int]):
    """With transitions so unlikely, and emissions so far apart, that sums of probabilities underflow."""
    steps, batch, tags = shape
    emissions, start, end = 60 * torch.randn(shape), torch.randn(tags), torch.randn(tags)
    transitions = torch.where(torch.rand(tags, tags) < 0.5, -1e4, 30.0) * torch.rand(tags, tags)
    lengths = torch.randint(1, steps + 1, (batch,))
    lengths[0] = steps
    weights = torch.rand(batch, dtype=torch.float64)
    values, gradients = [], []
    for backend, kind in (("auto", dtype), ("reference", torch.float64)):
        with set_backend(backend):
            leaves = [part.to(kind).requires_grad_() for part in (emissions, transitions, start, end)]
            chain = Chain(*leaves, lengths)
            assert chain_kernel.is_supported(chain) == (backend == "auto")
            value = chain_kernel.log_partition(chain)
            grads = torch.autograd.grad((value * weights.to(kind)).sum(), leaves, materialize_grads=True)
            values.append(value.double())
            gradients.append([gradient.double() for gradient in grads])
    torch.testing.assert_close(*values, rtol=1e-6 if dtype == torch.float32 else 1e-14, atol=0)
    for own, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=tolerance)


def test_threads_share_a_batch():
    crf, (emissions, tags) = field(20), case(64, 33, 20)
    with set_backend("auto"):
        alone = crf(emissions, tags), crf.viterbi(emissions)[0]
        before = torch.get_num_threads()
        torch.set_num_threads(3)
        try:
            together = crf(emissions, tags), crf.viterbi(emissions)[0]
            (gradient,) = torch.autograd.grad(together[0].sum(), crf.transitions)
        finally:
            torch.set_num_threads(before)
        assert torch.equal(alone[0], together[0])
        assert torch.equal(alone[1], together[1])
        (expected,) = torch.autograd.grad(alone[0].sum(), crf.transitions)
        torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-11)


@BACKENDS
def test_padding_is_not_read(backend: str):
    crf, (emissions, tags) = field(), case()
    outside = torch.arange(5)[:, None] >= LENGTHS
    other, wrong = emissions.masked_fill(outside[..., None], math.nan), tags.masked_fill(outside, 99)
    with set_backend(backend):
        assert torch.equal(crf(emissions, tags, LENGTHS), crf(other, wrong, LENGTHS))
        assert torch.equal(crf.marginals(emissions, LENGTHS), crf.marginals(other, LENGTHS))
        assert crf.decode(emissions, LENGTHS) == crf.decode(other, LENGTHS)


@BACKENDS
def test_tags_that_are_impossible_at_a_step(backend: str):
    """Scores of minus infinity, a common way to rule a tag out, as the plain enumeration has them."""
    crf, (emissions, _) = field(), case()
    emissions[2, :, 1], emissions[0, :, 3], emissions[4, 0, :2] = -math.inf, -math.inf, -math.inf
    emissions.requires_grad_()
    with set_backend(backend):
        total, marginals = crf.log_partition(emissions, LENGTHS), crf.marginals(emissions.detach(), LENGTHS)
        (gradient,) = torch.autograd.grad(total.sum(), emissions)
    for b, length in enumerate(LENGTHS.tolist()):
        paths = every_path(crf, emissions[:, b], length)
        assert total[b].item() == pytest.approx(log_sum(paths.values()), rel=1e-13)
    assert not marginals[2, :, 1].any()
    torch.testing.assert_close(marginals, gradient, rtol=1e-12, atol=1e-14)


@BACKENDS
def test_unknown_tags_are_summed_over(backend: str):
    crf, (emissions, tags) = field(), case()
    tags[1:3, 0] = -100
    with set_backend(backend):
        found = crf(emissions, tags, LENGTHS)
        paths = every_path(crf, emissions[:, 0], 5)
        agreeing = [v for p, v in paths.items() if all(k in (-100, p[t]) for t, k in enumerate(tags[:, 0].tolist()))]
        assert len(agreeing) == 16
        assert found[0].item() == pytest.approx(log_sum(agreeing) - log_sum(paths.values()), rel=1e-10)
        nothing_known = crf(emissions, torch.full_like(tags, -100), LENGTHS)
        torch.testing.assert_close(nothing_known, torch.zeros_like(nothing_known), rtol=0, atol=1e-12)


@BACKENDS
def test_samples_follow_the_distribution(backend: str):
    crf = field(3, forbidden=[(0, 1)])
    emissions = torch.randn(3, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([3, 2])
    with set_backend(backend):
        drawn = crf.sample(emissions.repeat(1, 2000, 1), lengths.repeat(2000), count=2)
    assert drawn.shape == (2, 3, 4000)
    for b, length in enumerate(lengths.tolist()):
        paths = every_path(crf, emissions[:, b], length)
        total = log_sum(paths.values())
        mine = drawn[:, :, b::2]
        assert bool((mine[:, length:] == -100).all())
        seen = mine[:, :length].transpose(1, 2).reshape(-1, length).tolist()
        for path, value in paths.items():
            p = math.exp(value - total)
            share = sum(tuple(one) == path for one in seen) / len(seen)
            assert abs(share - p) <= 4.5 * math.sqrt(p * (1 - p) / len(seen)) + 1e-12, (path, share, p)


def test_batch_first():
    crf, (emissions, tags) = field(), case()
    turned = field(batch_first=True)
    turned.load_state_dict(crf.state_dict())
    e, y = emissions.transpose(0, 1), tags.T
    assert torch.equal(crf(emissions, tags, LENGTHS), turned(e, y, LENGTHS))
    assert torch.equal(crf.marginals(emissions, LENGTHS), turned.marginals(e, LENGTHS).transpose(0, 1))
    assert torch.equal(crf.viterbi(emissions, LENGTHS)[0], turned.viterbi(e, LENGTHS)[0].T)
    assert turned.sample(e, LENGTHS, count=2).shape == (2, 3, 5)


@pytest.mark.parametrize("scheme", ["bio", "iob1", "bioes"])
def test_decoding_keeps_to_the_scheme(scheme: str):
    from recurra.models.tagging.schemes import violation

    letters = "BIES" if scheme == "bioes" else "BI"
    names = ["O", *(f"{letter}-{kind}" for letter in letters for kind in ("PER", "LOC"))]
    crf = rc.CRF(names, scheme).double()
    emissions = 20 * torch.randn(30, 40, len(names), dtype=torch.float64)
    lengths = torch.randint(1, 31, (40,))
    for backend in ("reference", "auto"):
        with set_backend(backend):
            paths = crf.decode(emissions, lengths)
            assert violation([[names[k] for k in path] for path in paths], scheme) is None
            assert all(crf.allows(path) for path in paths)
            for path, length in zip(crf.sample(emissions, lengths)[0].T.tolist(), lengths.tolist(), strict=True):
                assert crf.allows(path[:length])
    assert violation([[names[k] for k in path] for path in emissions.argmax(-1).T.tolist()], scheme) is not None


def test_transforms_and_half_precision():
    crf, (emissions, tags) = field(), case()
    with set_backend("auto"):
        alone = torch.func.vmap(lambda e, y: crf(e[:, None], y[:, None])[0], in_dims=(1, 1))(emissions, tags)
        torch.testing.assert_close(alone, crf(emissions, tags), rtol=1e-10, atol=1e-10)
        rough, fine = crf.float()(emissions.bfloat16(), tags, LENGTHS), crf(emissions, tags, LENGTHS)
    assert (rough.dtype, fine.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(rough.double(), fine, rtol=0, atol=0.2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@BACKENDS
def test_on_a_gpu(backend: str):
    """The plain loop there, and the compiled one beside it."""
    crf, (emissions, tags) = field(), case()
    with set_backend("reference"):
        expected = crf(emissions, tags, LENGTHS), crf.marginals(emissions, LENGTHS), crf.viterbi(emissions, LENGTHS)[0]
    crf.cuda()
    given = emissions.cuda(), tags.cuda(), LENGTHS.cuda()
    with set_backend(backend):
        found = crf(*given), crf.marginals(given[0], given[2]), crf.viterbi(given[0], given[2])[0]
        assert crf.sample(given[0], given[2]).device.type == "cuda"
    for own, other in zip(found, expected, strict=True):
        assert own.device.type == "cuda"
        torch.testing.assert_close(own.cpu(), other, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_compiles_in_one_graph():
    crf, (emissions, tags) = field(), case()
    with set_backend("auto"):
        compiled = torch.compile(lambda e, y, n: crf(e, y, n), fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(emissions, tags, LENGTHS), crf(emissions, tags, LENGTHS))


@pytest.mark.slow
def test_is_a_good_operation_of_torch():
    crf, (emissions, tags) = field(), case()
    leaves = [part.detach().requires_grad_() for part in (emissions, *crf.scores())]
    for given in (None, tags):
        torch.library.opcheck(torch.ops.recurra.chain.default, (*leaves, LENGTHS, given))
    best = [part.detach() for part in leaves]
    torch.library.opcheck(torch.ops.recurra.chain_best.default, (*best, LENGTHS))


def test_bad_input():
    crf, (emissions, tags) = field(), case()
    with pytest.raises(ShapeError, match=r"emissions: got shape \(5, 3, 3\), expected \(T, B, 4\)"):
        crf(emissions[..., :3], tags)
    with pytest.raises(ShapeError, match="at least one step"):
        crf.decode(emissions[:0])
    with pytest.raises(ShapeError, match=r"tags: got \(4, 3\)"):
        crf(emissions, tags[:4])
    with pytest.raises(DtypeError, match="tags"):
        crf(emissions, tags.double())
    with pytest.raises(DtypeError, match="emissions"):
        crf(tags[..., None].expand(5, 3, 4), tags)
    with pytest.raises(InputError, match=r"tags: got 5, expected 0 to 3, or -100"):
        crf(emissions, torch.full_like(tags, 5))
    with pytest.raises(InputError, match="tags: got -1"):
        crf(emissions, torch.full_like(tags, -1))
    with pytest.raises(LengthsError):
        crf(emissions, tags, [5, 0, 3])
    with pytest.raises(InputError, match="forbidden: got 7"):
        rc.CRF(4, forbidden=[(7, 0)])
    with pytest.raises(OptionError, match="scheme"):
        rc.CRF(4, "bio")
    with pytest.raises(UnknownNameError, match="did you mean 'bio'"):
        rc.CRF(["O", "B-X", "I-X"], "bip")
    with pytest.raises(InputError, match="twice"):
        rc.CRF(["O", "O"])
    with pytest.raises(InputError, match="tags"):
        rc.CRF(0)
