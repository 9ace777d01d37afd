"""Encoder–decoder: against NumPy, against torch's attention, and against search over all outputs."""

import itertools

import numpy as np
import pytest
import torch
from cases import randomise
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.models import EncoderDecoder, NextSymbol, Pairs, Symbols, beam, greedy
from recurra.models.seq2seq import AdditiveAttention, DotAttention
from recurra.models.seq2seq.search import select_rows


@pytest.fixture(autouse=True)
def _plain_loop():
    with set_backend("reference"):
        yield


def make(attention: str | None = None, outputs: int = 4, cell: str = "gru", **options) -> EncoderDecoder:
    encoder = rc.layer(cell, 3, 5, bidirectional=True)
    decoder = rc.layer(cell, 2 + (0 if attention else 10), 6, **options)
    return randomise(EncoderDecoder(encoder, decoder, outputs, inputs=7, attention=attention).double())


def data(steps: int = 5, batch: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    target = torch.randint(2, 4, (4, batch))
    return torch.randint(7, (steps, batch)), target, torch.tensor([steps, 2, 3][:batch])


# ------------------------------------------------------------------------------------------ the equations


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def gru(w, x, h):
    r, z = (sigmoid(w[f"{k}.U"] @ x + w[f"{k}.W"] @ h + w[f"{k}.b"]) for k in "rz")
    return (1 - z) * h + z * np.tanh(w["c.U"] @ x + w["c.W"] @ (r * h) + w["c.b"])


def weights(cell: rc.Cell) -> dict[str, np.ndarray]:
    return {n: p.detach().numpy() for n, p in cell.named_parameters()}


def log_softmax(a):
    return a - a.max() - np.log(np.exp(a - a.max()).sum())


def transcription(model: EncoderDecoder, source: list[int], target: list[int]) -> np.ndarray:
    """log p of every next token for one pair, (T, V): Cho et al. 2014, with attention after Luong et al. 2015."""
    p = {n: v.detach().numpy() for n, v in model.named_parameters()}
    ways = [weights(cell) for cell in model.encoder.cells]
    xs = [p["source.weight"][k] for k in source]
    forward, backward = [np.zeros(5)], [np.zeros(5)]
    for x in xs:
        forward.append(gru(ways[0], x, forward[-1]))
    for x in reversed(xs):
        backward.append(gru(ways[1], x, backward[-1]))
    memory = [np.concatenate(pair) for pair in zip(forward[1:], backward[:0:-1], strict=True)]
    summary = np.concatenate([forward[-1], backward[-1]])
    h = np.tanh(p["bridge.weight"] @ summary + p["bridge.bias"])
    found = []
    for token in [model.start, *target[:-1]]:
        x = p["target.weight"][token]
        h = gru(weights(model.decoder.cells[0]), x if model.attention else np.concatenate([x, summary]), h)
        shown = h
        if model.attention:
            if isinstance(model.attention, DotAttention):
                scores = np.array([h @ p["attention.W.weight"] @ m for m in memory])
            else:
                sums = [
                    p["attention.W.weight"] @ h + p["attention.U.weight"] @ m + p["attention.U.bias"] for m in memory
                ]
                scores = np.array([p["attention.v.weight"][0] @ np.tanh(a) for a in sums])
            context = np.exp(log_softmax(scores)) @ np.array(memory)
            shown = np.tanh(p["combine.weight"] @ np.concatenate([h, context]) + p["combine.bias"])
        found.append(log_softmax(p["output.weight"] @ shown + p["output.bias"]))
    return np.array(found)


@pytest.mark.parametrize("attention", [None, "additive", "dot"])
def test_is_its_equations_whatever_the_padding(attention: str | None) -> None:
    model, (source, target, lengths) = make(attention), data()
    found = model(source, target, lengths).log_softmax(-1).detach().numpy()
    for b, n in enumerate(lengths.tolist()):
        expected = transcription(model, source[:n, b].tolist(), target[:, b].tolist())
        np.testing.assert_allclose(found[:, b], expected, rtol=1e-11, atol=1e-11)


def test_dot_attention_is_torchs() -> None:
    attention = DotAttention(4, 3).double()
    query, memory = torch.randn(5, 2, 4, dtype=torch.float64), torch.randn(6, 2, 3, dtype=torch.float64)
    valid = torch.arange(6)[:, None] < torch.tensor([6, 2])
    found, share = attention(query, memory, valid)
    q, k, v = (value.transpose(0, 1) for value in (query, attention.W(memory), memory))
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, valid.T[:, None], scale=1.0)
    assert_close(found, expected.transpose(0, 1), 1e-12)
    assert_close(share.sum(-1), torch.ones(5, 2, dtype=torch.float64), 1e-12)
    assert (share[:, 1, 2:] == 0).all()


def test_additive_attention_pair_by_pair() -> None:
    attention = AdditiveAttention(4, 3).double()
    query, memory = torch.randn(2, 2, 4, dtype=torch.float64), torch.randn(3, 2, 3, dtype=torch.float64)
    found = attention.scores(query, memory)
    for t, b, s in itertools.product(range(2), range(2), range(3)):
        expected = attention.v(torch.tanh(attention.W(query[t, b]) + attention.U(memory[s, b])))
        assert_close(found[t, b, s], expected[0], 1e-12)


@pytest.mark.parametrize("attention", [None, "additive"])
@pytest.mark.parametrize(("cell", "options"), [("lstm", {"num_layers": 2}), ("delay_rnn", {}), ("slstm", {})])
def test_any_cell_step_by_step(attention: str | None, cell: str, options: dict) -> None:
    """Writing one token at a time with the state is the same as all at once."""
    model, (source, target, lengths) = make(attention, cell=cell, **options), data()
    whole = model(source, target, lengths)
    encoded, state = model.encode(source, lengths)
    previous, found = model._shifted(target), []
    for token in previous:
        logits, state = model.decode(token[None], encoded, state)
        found.append(logits)
    assert_close(torch.cat(found), whole, 1e-12)


@pytest.mark.parametrize("bidirectional", [False, True, "separate"])
@pytest.mark.parametrize("depth", ["stack", "residual", "graves"])
def test_the_summary_holds_what_every_direction_has_read_to_its_end(bidirectional: bool | str, depth: str) -> None:
    encoder = rc.LSTM(3, 3, 2, bidirectional=bidirectional, depth=depth)
    decoder = rc.GRU(2 + encoder.output_size, 6)
    model = randomise(EncoderDecoder(encoder, decoder, 4).double())
    by_x = torch.autograd.functional.jacobian(
        lambda x: model.encode_checked(x, torch.tensor([4]))[0].summary, torch.randn(4, 1, 3, dtype=torch.float64)
    )
    assert isinstance(by_x, Tensor)
    assert bool((by_x[0, :, :, 0].abs().sum(-1) > 0).all())  # every entry depends on every step


def test_states_of_different_widths_are_selected() -> None:
    layer = rc.LSTM(3, [4, 2]).double()
    _, state = layer(torch.randn(2, 5, 3, dtype=torch.float64))
    rows = torch.tensor([4, 0, 0])
    again = select_rows(layer, state, rows)
    x = torch.randn(3, 3, 3, dtype=torch.float64)
    alone = [layer(x[:, b : b + 1], select_rows(layer, state, rows[b : b + 1]))[0] for b in range(3)]
    assert_close(layer(x, again)[0], torch.cat(alone, 1), 1e-12)


# ------------------------------------------------------------------------------------------ search


def all_outputs(model: EncoderDecoder, source: Tensor, lengths: Tensor, b: int, longest: int) -> dict[tuple, float]:
    """log p of every output of at most `longest` tokens, `stop` included; or cut off there."""
    others = [k for k in range(model.outputs) if k != model.stop]
    ended = [(*body, model.stop) for n in range(longest) for body in itertools.product(others, repeat=n)]
    found = {}
    for tokens in [*ended, *itertools.product(others, repeat=longest)]:
        target = torch.tensor(tokens)[:, None]
        logits = model(source[: lengths[b], b : b + 1], target)
        found[tokens] = float(logits.log_softmax(-1)[:, 0].gather(1, target).sum())
    return found


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
@torch.no_grad()
def test_a_wide_beam_finds_the_best_of_all(alpha: float) -> None:
    model, (source, _, lengths) = make("dot", outputs=3), data(batch=2)
    written, scores = beam(model, source, lengths[:2], width=40, longest=4, length_penalty=alpha)
    for b in range(2):
        every = all_outputs(model, source, lengths, b, 4)
        ranked = sorted(every.items(), key=lambda item: -item[1] / len(item[0]) ** alpha)
        for (tokens, value), found, score in zip(ranked[:5], written[b], scores[b].tolist(), strict=False):
            body = [k for k in tokens if k != model.stop]
            assert found.tolist() == body
            assert score == pytest.approx(value / len(tokens) ** alpha, rel=1e-10)


@torch.no_grad()
def test_greedy_is_a_beam_of_one_and_takes_the_best_token() -> None:
    model, (source, _, lengths) = make("additive"), data()
    tokens, total = greedy(model, source, lengths, longest=6)
    written, scores = beam(model, source, lengths, width=1, longest=6, length_penalty=0.0)
    assert [row[0].tolist() for row in written] == [row.tolist() for row in tokens]
    assert_close(scores[:, 0], total, 1e-12)
    for b, row in enumerate(tokens):
        target = torch.tensor([*row.tolist(), model.stop][:6])[:, None]
        logits = model(source[: lengths[b], b : b + 1], target)
        assert logits[:, 0].argmax(-1).tolist() == target[:, 0].tolist()


def test_search_writes_without_dropout_and_leaves_the_mode() -> None:
    model, (source, _, lengths) = make("dot"), data()
    model.dropout.p = 0.9
    first, second = (greedy(model, source, lengths)[1] for _ in range(2))
    assert torch.equal(first, second)
    assert model.training


# ------------------------------------------------------------------------------------------ training


def test_scheduled_sampling_reads_its_own_tokens() -> None:
    """Without sampling the loop is teacher forcing; with sampling alone, the targets do not matter."""
    model, (source, target, lengths) = make("additive"), data()
    assert_close(model(source, target, lengths, sampling=1e-12), model(source, target, lengths), 1e-12)
    runs = []
    for other in (target, 5 - target):
        torch.manual_seed(3)
        runs.append(model(source, other, lengths, sampling=1.0))
    assert torch.equal(*runs)
    assert not torch.allclose(runs[0], model(source, target, lengths))


def test_the_loss_counts_real_tokens() -> None:
    model, (source, target, lengths) = make("dot"), data()
    padded = target.clone()
    padded[2:, 1] = -100
    batch = rc.data.Batch(source, padded, lengths, torch.arange(3))
    goal = NextSymbol()
    assert goal.count(batch) == 10
    log_probs = model(source, padded, lengths).log_softmax(-1)
    real = [(t, b) for t, b in itertools.product(range(4), range(3)) if padded[t, b] != -100]
    expected = -sum(log_probs[t, b, padded[t, b]] for t, b in real)
    assert_close(goal(model.eval(), batch, None)[0]["loss"].double(), expected, 1e-6)  # the loss is float32


def test_pairs_are_the_same_from_any_position() -> None:
    sources = [torch.arange(3, 3 + n) for n in range(1, 30)]
    pairs = Pairs(sources, sources, 4, seed=2)
    whole = [batch.ids.tolist() for batch in pairs.epoch(1)]
    assert [batch.ids.tolist() for batch in pairs.epoch(1, start=3)] == whole[3:]
    assert sorted(itertools.chain(*whole)) == list(range(29))
    assert whole != [batch.ids.tolist() for batch in pairs.epoch(2)]
    for batch in pairs.epoch(1):
        for b, k in enumerate(batch.ids.tolist()):
            assert batch.inputs[: batch.lengths[b], b].tolist() == sources[k].tolist()


def test_symbols_there_and_back() -> None:
    symbols = Symbols.of(["ab", "bc"], "character")
    assert symbols.encode("cab", stop=True).tolist() == [5, 3, 4, 1]
    assert symbols.encode("x").tolist() == [2]
    assert symbols.encode("").tolist() == [1]
    assert symbols.decode(symbols.encode("cab", stop=True)) == "cab"
    words = Symbols.of(["one two"], "word")
    assert words.decode(words.encode("two one")) == "two one"


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(rc.UnknownNameError, match="attention"):
        make("dott")
    with pytest.raises(rc.OptionError, match="decoder"):
        EncoderDecoder(rc.GRU(3, 4), rc.GRU(7, 4, bidirectional=True), 5)
    with pytest.raises(rc.InputError, match="encoder: got batch_first"):
        EncoderDecoder(rc.GRU(3, 4, batch_first=True), rc.GRU(7, 4), 5)
    with pytest.raises(rc.InputError, match="beside a target embedding"):
        EncoderDecoder(rc.GRU(3, 4), rc.GRU(4, 4), 5)
    with pytest.raises(rc.InputError, match="stop"):
        EncoderDecoder(rc.GRU(3, 4), rc.GRU(6, 4), 5, stop=5)
    model = make()
    with pytest.raises(rc.ShapeError, match="source"):
        model(torch.zeros(5, 2, 3), torch.zeros(4, 2, dtype=torch.int64))
    with pytest.raises(rc.OptionError, match="without attention"):
        model.attention_weights(*data()[:2])
    with pytest.raises(rc.InputError, match="sampling"):
        NextSymbol(1.5)
    with pytest.raises(rc.InputError, match="sampling"):
        model(*data()[:2], sampling=-0.5)
    with pytest.raises(rc.InputError, match="width"):
        beam(model, data()[0], width=0)
