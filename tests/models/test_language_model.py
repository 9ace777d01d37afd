"""Language models: what they see, what they carry on, what they learn, and what they write."""

import math

import pytest
import torch
from engines import either_engine, on_either_engine  # noqa: F401

from recurra.errors import InputError, OptionError, ShapeError, UnknownNameError
from recurra.models.language import (
    IGNORE,
    Characters,
    Embedding,
    LanguageModel,
    NextToken,
    SampledSoftmax,
    Stack,
    TextError,
    TwoWayStreams,
    Words,
)
from recurra.models.language.generate import filter_logits, sample_token
from recurra.train import evaluate, fit

LETTERS = Characters(tuple("abcdefgh\n"))


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(len(LETTERS), shape)


def small(**options) -> LanguageModel:
    return LanguageModel(LETTERS, 5, **options).double().eval()


@on_either_engine
@pytest.mark.parametrize("cell", ["lstm", "gru", "mgu", "rnn", "scrn"])
def test_a_prediction_depends_on_nothing_to_come(cell):
    model, text = small(cell=cell, num_layers=2), tokens(7, 2)
    changed = text.clone()
    changed[4] = (changed[4] + 1) % len(LETTERS)
    (first, _), (second, _) = model(text), model(changed)
    torch.testing.assert_close(first[:4], second[:4], rtol=0, atol=0)
    assert float((first[4] - second[4]).detach().abs().min()) > 0
    torch.testing.assert_close(first.exp().sum(-1), torch.ones(7, 2, dtype=torch.float64))


@on_either_engine
@pytest.mark.parametrize("direction", ["forward", "both"])
def test_a_text_in_parts_with_the_state_carried_on_is_the_text_as_a_whole(direction):
    model = small(direction=direction, num_layers=2, residual=True)
    text = tokens(9, 3, 2) if direction == "both" else tokens(9, 3)
    whole, end = model(text)
    state, parts = None, []
    for part in (text[:4], text[4:5], text[5:]):
        y, state = model(part, state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts), whole)
    torch.testing.assert_close(state, end)


def test_both_directions_are_two_models_that_share_embedding_and_softmax():
    both, onward, back = small(direction="both"), small(), small(direction="backward")
    onward.ways[0].load_state_dict(both.ways[0].state_dict())
    back.ways[0].load_state_dict(both.ways[1].state_dict())
    for one in (onward, back):
        one.encoder.load_state_dict(both.encoder.state_dict())
        one.output.load_state_dict(both.output.state_dict())
    text = tokens(6, 2)
    found, _ = both(torch.stack([text, text.flip(0)], dim=-1))
    torch.testing.assert_close(found[:, :, 0], onward(text)[0])
    torch.testing.assert_close(found[:, :, 1], back(text.flip(0))[0])
    stories = "abcabcdefgh\nabc"
    mean = (onward.measure(stories)["nats"] + back.measure(stories)["nats"]) / 2
    assert both.measure(stories)["nats"] == pytest.approx(mean, abs=1e-12)


def test_dropout_acts_between_layers_and_before_the_softmax():
    stack, x = Stack("rnn", 3, 4, 2, dropout=1.0).train(), torch.randn(5, 2, 3)
    (first, second), _ = stack(x)
    torch.testing.assert_close(first, stack.eval()(x)[0][0])
    torch.testing.assert_close(second, stack.layers[1](torch.zeros(5, 2, 4))[0])
    model, text = small(dropout=1.0), tokens(3, 2)
    before = model(text)[0]
    torch.testing.assert_close(model.train()(text)[0], model.output.log_probs(torch.zeros(3, 2, 5).double()))
    assert float((before - model(text)[0]).abs().max().detach()) > 0
    drowned = small(input_dropout=1.0).train()
    torch.testing.assert_close(drowned(text)[0], drowned((text + 1) % len(LETTERS))[0])


def test_contexts_are_those_of_each_sentence_alone_in_the_order_it_is_written():
    model = small(direction="both", num_layers=2)
    text, lengths = tokens(6, 3), torch.tensor([6, 1, 4])
    onward, back = model.contexts(text, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = text[:length, row : row + 1]
        pair = torch.stack([alone, alone.flip(0)], dim=-1)
        tops, _ = model.read(pair)
        torch.testing.assert_close(onward[-1][:length, row], tops[:, 0, 0])
        torch.testing.assert_close(back[-1][:length, row], tops[:, 0, 1].flip(0))


def test_the_loss_leaves_out_what_has_no_target_and_counts_the_rest():
    model, text = small(), tokens(5, 2)
    targets = tokens(5, 2)
    targets[1, 0] = targets[4, 1] = IGNORE
    nll, _ = model.nll(text, targets)
    log_probs, _ = model(text)
    for t in range(5):
        for b in range(2):
            k = int(targets[t, b])
            expected = 0.0 if k == IGNORE else -log_probs[t, b, k].item()
            assert nll[t, b].item() == pytest.approx(expected, abs=1e-12)


def test_words_that_can_be_read_but_not_predicted_count_as_unknown():
    vocabulary = Words(["the", "<unk>", "cat"])
    model = LanguageModel(vocabulary, 4, encoder=Embedding(5, 4)).eval()
    text = torch.tensor([[0], [3], [4]])
    found, _ = model.nll(text, torch.tensor([[3], [4], [0]]))
    expected, _ = model.nll(text, torch.tensor([[1], [1], [0]]))
    torch.testing.assert_close(found, expected)
    measured = model.measure(torch.tensor([0, 3, 4, 0]))
    assert measured["nats"] == pytest.approx(found.mean().item())


def test_measures_of_a_text():
    """By hand, and as `evaluate` measures the same text."""
    model, text = small(), "abcabcahg\n"
    numbers = LETTERS.encode(text)
    log_probs, _ = model(numbers[:-1, None])
    nats = -log_probs[:, 0].gather(1, numbers[1:, None]).mean().item()
    measured = model.measure(text, chunk=4)
    assert measured["nats"] == pytest.approx(nats, abs=1e-12)
    assert measured["perplexity"] == pytest.approx(math.exp(nats))
    assert measured["bits_per_character"] == pytest.approx(nats / math.log(2))
    assert evaluate(model, model.streams(text, 1, 3), loss=NextToken(), device="cpu")["loss"] == pytest.approx(nats)


def test_bits_of_words_are_shared_among_their_characters():
    vocabulary = Words.from_text("the cat\nthe mat\n")
    model = LanguageModel(vocabulary, 4)
    text = "the cat\nthe mat"
    measured = model.measure(text)
    predicted = vocabulary.decode(vocabulary.encode(text)[1:])
    total = measured["nats"] * (len(vocabulary.encode(text)) - 1)
    assert measured["bits_per_character"] == pytest.approx(total / math.log(2) / len(predicted))


@pytest.mark.parametrize(
    ("direction", "output"),
    [("forward", "full"), ("backward", "tied"), ("both", "full"), ("forward", "adaptive"), ("backward", "sampled")],
)
def test_a_text_that_repeats_itself_is_learned(direction, output):
    text = "the cat sat on the mat, " * 30
    vocabulary = Characters.from_text(text)
    model = LanguageModel(vocabulary, 24, direction=direction, output=output, cell="gru")
    before = model.measure(text)["nats"]
    assert before == pytest.approx(math.log(len(vocabulary)), abs=0.5)
    fit(model, model.streams(text, 6, 12), loss=NextToken(), lr=4e-2, epochs=8, progress=False, device="cpu")
    assert model.measure(text)["nats"] < 0.5  # 0.61 is what the last character alone tells


def test_streams_of_both_directions_hold_the_text_and_its_mirror_image():
    text = torch.arange(21)
    batches = list(TwoWayStreams(text, 2, 4).epoch(0))
    assert [batch.carried for batch in batches] == [False, True, True]
    inputs = torch.cat([batch.inputs for batch in batches])  # (T, 2, 2)
    assert inputs[:, 0, 0].tolist() == list(range(10))
    assert inputs[:, 1, 0].tolist() == list(range(10, 20))
    assert inputs[:, 0, 1].tolist() == list(range(20, 10, -1))
    targets = torch.cat([batch.targets for batch in batches])
    assert targets[:, 0, 1].tolist() == list(range(19, 9, -1))


# ---------------------------------------------------------------------------------------------------- writing


def greedy(model: LanguageModel, prompt: str, length: int) -> str:
    text = LETTERS.encode(prompt).tolist()
    for _ in range(length):
        log_probs, _ = model(torch.tensor(text)[:, None])
        text.append(int(log_probs[-1, 0].argmax()))
    return LETTERS.decode(text)


def test_without_temperature_the_likeliest_token_is_written():
    model = small()
    expected = greedy(model, "abc", 12)
    assert model.generate("abc", 12, temperature=0.0) == expected
    assert model.generate("abc", 12, top_k=1) == expected
    assert model.generate("abc", 12, top_p=1e-6) == expected


def test_a_seed_repeats_what_is_written_and_training_goes_on_where_it_was():
    model = small().train()
    first, again, other = (model.generate("a", 40, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert first.startswith("a")
    assert len(first) == 41
    assert model.training
    assert len(model.generate(length=5)) == 5
    assert model.generate("abc", 0) == "abc"


def test_without_a_seed_the_text_follows_that_of_torch():
    model, written = small(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        written.append(model.generate("a", 40))
    assert written[0] == written[1] != written[2]


def test_a_backward_model_writes_what_comes_before():
    text = "abcdefgh" * 20
    model = LanguageModel(LETTERS, 16, direction="backward", cell="gru")
    fit(model, model.streams(text, 4, 10), loss=NextToken(), lr=3e-2, epochs=12, progress=False, device="cpu")
    assert model.generate("fgh", 5, temperature=0.0) == "abcdefgh"


def test_who_may_be_drawn():
    logits = torch.tensor([[0.1, 0.5, 0.15, 0.25]]).log()
    inf = torch.inf
    assert filter_logits(logits, top_k=2)[0].tolist() == pytest.approx([-inf, math.log(0.5), -inf, math.log(0.25)])
    assert (filter_logits(logits, top_p=0.5)[0] > -inf).tolist() == [False, True, False, False]
    assert (filter_logits(logits, top_p=0.51)[0] > -inf).tolist() == [False, True, False, True]
    assert (filter_logits(logits, top_p=1.0)[0] > -inf).all()
    assert (filter_logits(logits, top_k=2, top_p=0.7)[0] > -inf).tolist() == [False, True, False, True]
    assert (filter_logits(logits, top_k=2, top_p=0.6)[0] > -inf).tolist() == [False, True, False, False]
    assert (filter_logits(logits, top_k=9)[0] > -inf).all()


def test_how_often_a_token_is_drawn():
    probabilities = torch.tensor([0.1, 0.5, 0.15, 0.25])
    random = torch.Generator().manual_seed(0)
    drawn = sample_token(probabilities.log().expand(20_000, 4), temperature=0.5, random=random)
    expected = probabilities.square() / probabilities.square().sum()
    found = torch.bincount(drawn, minlength=4) / 20_000
    assert float(((found - expected).abs() / (expected * (1 - expected) / 20_000).sqrt()).max()) < 4.0


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"direction": "sideways"}, UnknownNameError, "direction: got 'sideways'"),
        ({"output": "soft"}, UnknownNameError, "output: got 'soft'"),
        ({"cell": "lstn"}, UnknownNameError, "did you mean 'lstm'"),
        ({"output": "tied", "encoder": torch.nn.Module()}, OptionError, "an encoder that is an Embedding"),
        ({"bidirectional": True}, OptionError, "neither bidirectional"),
        ({"encoder": Embedding(9, 3), "embedding_size": 4}, OptionError, "embedding_size: got 4"),
        ({"output": SampledSoftmax}, UnknownNameError, "output: got"),
        ({"ways": []}, InputError, "ways: got 0 stacks"),
    ],
)
def test_settings_that_do_not_exist(options, error, message):
    if isinstance(options.get("encoder"), torch.nn.Module) and not isinstance(options["encoder"], Embedding):
        options["encoder"].output_size = 3
    with pytest.raises(error, match=message):
        LanguageModel(LETTERS, 4, **options)


def test_tokens_that_are_none():
    model = small()
    with pytest.raises(InputError, match="tokens: got 9, expected numbers from 0 to 8"):
        model(torch.tensor([[9]]))
    with pytest.raises(InputError, match="tokens: got -1"):
        model(torch.tensor([[-1]]))
    with pytest.raises(InputError, match=r"tokens: got torch.float32, expected whole numbers \(T, B\)"):
        model(torch.zeros(3, 1))
    with pytest.raises(ShapeError, match=r"tokens: got shape \(3,\)"):
        model(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ShapeError, match=r"\(T, B, 2\)"):
        small(direction="both")(torch.zeros(3, 1, dtype=torch.int64))
    with pytest.raises(ShapeError, match="targets: got"):
        model.nll(tokens(3, 1), tokens(2, 1))
    with pytest.raises(ShapeError, match=r"tokens: got shape \(3, 1\), expected \(T,\)"):
        model.measure(tokens(3, 1))
    with pytest.raises(TextError, match="at least two"):
        model.measure("a")
    with pytest.raises(InputError, match="vocabulary: got list"):
        LanguageModel(["a"], 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature: got -1.0"),
        ({"temperature": float("nan")}, "temperature: got nan"),
        ({"top_k": 0}, "top_k: got 0"),
        ({"top_p": 0.0}, "top_p: got 0.0"),
        ({"top_p": 1.5}, "top_p: got 1.5"),
        ({"length": -1}, "length: got -1"),
    ],
)
def test_choices_that_cannot_be_made(options, message):
    with pytest.raises(InputError, match=message):
        small().generate("a", **options)


def test_a_model_of_both_directions_does_not_write():
    with pytest.raises(OptionError, match="a bidirectional model"):
        small(direction="both").generate("a")
    with pytest.raises(TextError, match="unknown character 'Z' at position 1"):
        small().generate("aZ")
