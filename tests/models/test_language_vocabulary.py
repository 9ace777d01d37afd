"""Text to numbers and back, and texts that cannot be read."""

import pytest
import torch

from recurra.models.language import Characters, Subwords, TextError, Words
from recurra.models.language.vocabulary import build_vocabulary, vocabulary_from

TEXT = "the cat sat\non the mat\nthe end\n"


def test_characters_come_back_as_they_went():
    vocabulary = Characters.from_text(TEXT)
    numbers = vocabulary.encode(TEXT)
    assert numbers.dtype is torch.int64
    assert vocabulary.decode(numbers) == TEXT
    assert len(vocabulary) == len(set(TEXT))


def test_frequent_tokens_come_first_and_the_order_of_the_text_does_not_matter():
    assert Characters.from_text("abbccc").tokens == ("c", "b", "a")
    assert Characters.from_text("cbacbc").tokens == ("c", "b", "a")
    assert Words.from_text("b a b\na c b\n").tokens == ("b", "<unk>", "\n", "a", "c")


def test_words_keep_lines_and_replace_what_they_do_not_know():
    vocabulary = Words.from_text(TEXT, least=2)
    assert set(vocabulary.tokens) == {"the", "\n", "<unk>"}
    numbers = vocabulary.encode("the  dog\n the")
    assert [vocabulary.tokens[k] for k in numbers.tolist()] == ["the", "<unk>", "\n", "the"]
    assert vocabulary.decode(numbers) == "the <unk>\nthe"


def test_a_vocabulary_of_a_given_size_keeps_the_most_frequent_words():
    full, small = Words.from_text(TEXT), Words.from_text(TEXT, size=4)
    assert small.tokens == full.tokens[:4]
    assert small.unknown == full.unknown == 1


def test_sentences_stand_between_boundaries():
    vocabulary = Words.from_sentences([["a", "b"], ["c"]])
    line = vocabulary.line([["a", "b"], ["c"]])
    assert vocabulary.decode(line) == "\na b\nc\n"


def test_pieces_of_words_are_learned_and_nothing_is_unknown():
    vocabulary = Subwords.train(TEXT * 20, size=300)
    strange = "the Ωmat\n😀"
    assert vocabulary.decode(vocabulary.encode(strange)) == strange
    assert len(vocabulary.encode("the the the")) < len("the the the")
    assert [vocabulary.decode(piece) for piece in vocabulary.pieces(["the", "mat"])] == [" the", " mat"]
    assert vocabulary.decode([vocabulary.boundary_number()]) == "\n"


@pytest.mark.parametrize("level", ["character", "word", "subword"])
def test_a_stored_vocabulary_is_the_same(level):
    vocabulary = build_vocabulary(level, TEXT)
    again = vocabulary_from(vocabulary.to_config())
    assert type(again) is type(vocabulary)
    assert again.tokens == vocabulary.tokens
    assert again.encode("the cat").tolist() == vocabulary.encode("the cat").tolist()


def test_a_tokenizer_file_is_read(tmp_path):
    vocabulary = Subwords.train(TEXT, size=270)
    (tmp_path / "tokenizer.json").write_text(vocabulary.to_config()["tokenizer"], encoding="utf-8")
    assert Subwords.from_file(tmp_path / "tokenizer.json").tokens == vocabulary.tokens


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b'{"model": 3}'])
def test_a_bad_tokenizer_file_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TextError, match=r"tokenizer\.json.*JSON of a tokenizer"):
        Subwords.from_file(tmp_path / "tokenizer.json")


def test_an_unknown_character_is_named_with_its_place():
    with pytest.raises(TextError, match="unknown character 'ß' at position 4"):
        Characters.from_text(TEXT).encode("the ß")
    assert Characters.from_text(TEXT, unknown=True).encode("ß").tolist() == [1]


def test_text_that_is_no_text():
    vocabulary = Characters.from_text(TEXT, unknown=True)
    with pytest.raises(TextError, match=r"half a surrogate pair, '\\udcff', at position 3"):
        vocabulary.encode("the\udcff")
    with pytest.raises(TextError, match="got bytes, expected a string"):
        vocabulary.encode(b"the")
    with pytest.raises(TextError, match="no token that is frequent enough"):
        Characters.from_text("")
    with pytest.raises(TextError, match="no token for the end of a line"):
        Characters.from_text("abc").boundary_number()
