"""The Tagger: word features, bidirectional layers of any cell, and a softmax, CRF or HMM output.

With a CRF this is the network of Huang, Xu & Yu (2015) and Ma & Hovy (2016); with a language model as `extra_inputs` of
the second layer TagLM (Peters et al. 2017), with ELMo at the input that of Peters et al. (2018).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...argument_checks import instance_of
from ...cell import Cell, positive_int
from ...data.sequences import Batch, SequenceSet
from ...engine.reference import valid_steps
from ...errors import InputError, OptionError, ShapeError, UnknownNameError
from ...layers import Recurrent
from ...ragged import check_lengths
from ...readout import Readout
from ...storage import FolderContents, cell_name, read_folder, write_folder
from .features import CharCNN, CharRNN, TokenVectors, WordFeatures
from .pretrained_vectors import TextVectors
from .schemes import violation
from .spelling import SpellingFeatures
from .tag_outputs import OUTPUTS, HMMOutput, make_output
from .tagger_vocabulary import RESERVED, Columns, Sentences, Vocabulary, check_sentences

KIND = "Tagger"  # in config.json
CHARS = ("cnn", "rnn", None)
PLACES = ("input", "hidden", "output")


class Tagger(nn.Module):
    """A sequence tagger: word features, bidirectional layers of any cell, and a softmax, CRF or HMM output.

    `Tagger.of(sentences, tags)` builds one for a corpus; `rc.SequenceTagger` wraps it as an estimator.

    **Arguments**

    - `vocabulary`: the words, characters, columns and tags, as `Vocabulary.of(sentences, tags)` collects them.
    - `word_size`, `column_size`: sizes of the embeddings of words and of further columns, such as parts of speech.
    - `chars`: `"cnn"`, `"rnn"` or None: the network over the characters of a word, with embeddings of `char_size` and
      outputs of `char_features`.
    - `affix_size`: of the vectors of prefixes and suffixes, which are read with twelve questions about a word's form
      (Huang, Xu & Yu 2015); 0 leaves the affixes out. `Tagger.of(…, forms=False)` leaves the form out altogether.
    - `cell`, `hidden_size`, `num_layers`: of the bidirectional layers; `hidden_size` is per direction.
    - `output`: `"softmax"`, `"crf"` or `"hmm"`.
    - `dropout`: on the features and on every layer's output.
    - `vectors`: pretrained vectors (`rc.models.read_vectors`) to initialise the word embeddings; they set `word_size`.
    - `extra_inputs`: a module that gives vectors to words (`rc.models.TokenVectors`), such as an `rc.ELMo`; appended at
      `extra_at`: the `"input"`, the `"hidden"` layer after the first, or the `"output"` of the last.
    - `max_length`: the most words a sentence may have.

    **Returns**

    `tagger(x, lengths)`: words (T, B, width), as `encode` gives them → scores of the tags, (T, B, K). `tagger.tag`
    takes sentences and returns tags as strings.

    **Example**

        >>> sentences, tags = [["John", "sleeps"], ["Mary", "runs"]], [["B-PER", "O"], ["B-PER", "O"]]
        >>> tagger = rc.models.Tagger.of(sentences, tags, hidden_size=8, word_size=8)
        >>> batches = rc.data.Batches(tagger.encode(sentences, tags), 2)
        >>> result = rc.train.fit(tagger, batches, loss=tagger.objective(), epochs=30, lr=0.05)
        >>> tagger.tag([["Mary", "sleeps"]])
        [['B-PER', 'O']]
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        word_size: int = 100,
        chars: str | None = "cnn",
        char_size: int = 25,
        char_features: int = 50,
        column_size: int = 20,
        affix_size: int = 64,
        cell: str | type[Cell] = "lstm",
        hidden_size: int = 128,
        num_layers: int = 1,
        output: str = "crf",
        dropout: float = 0.5,
        vectors: TextVectors | None = None,
        extra_inputs: TokenVectors | None = None,
        extra_at: str = "input",
        max_length: int = 1000,
    ):
        super().__init__()
        self.options: dict[str, Any] = {
            "word_size": word_size if vectors is None else vectors.width,
            "chars": chars,
            "char_size": char_size,
            "char_features": char_features,
            "column_size": column_size,
            "affix_size": affix_size,
            "cell": cell,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "output": output,
            "dropout": dropout,
            "extra_at": extra_at,
            "max_length": max_length,
        }
        for name, value, known in (
            ("output", output, OUTPUTS),
            ("chars", chars, CHARS),
            ("extra_at", extra_at, PLACES),
        ):
            if value not in known:
                raise UnknownNameError(name, repr(value), [str(each) for each in known])
        if not 0 <= dropout < 1:
            raise InputError("dropout", dropout, "a share from 0 to below 1")
        instance_of("vocabulary", vocabulary, Vocabulary, "an rc.models.Vocabulary")
        self.vocabulary, self.dropout, self.max_length = vocabulary, dropout, positive_int("max_length", max_length)
        spelling = _make_spelling(chars, len(vocabulary.characters), char_size, char_features)
        form = SpellingFeatures(affix_size) if vocabulary.forms else None
        self.features = WordFeatures(vocabulary, self.options["word_size"], column_size, spelling, form)
        if vectors is not None:
            self._copy_pretrained(vectors)
        self.extra_inputs = extra_inputs if extra_inputs is None else _check_extra_inputs(extra_inputs)
        self._build(cell, hidden_size, positive_int("num_layers", num_layers), extra_at)
        self.output = make_output(output, vocabulary.classes, vocabulary.scheme)

    def _build(self, cell: str | type[Cell], hidden_size: int, num_layers: int, extra_at: str) -> None:
        place = {"input": 0, "hidden": 1, "output": num_layers}[extra_at]
        if self.extra_inputs is not None and extra_at == "hidden" and num_layers < 2:
            raise OptionError("extra_at", "'hidden' with one layer", "num_layers of two or more")
        self.place = None if self.extra_inputs is None else place
        size, layers = self.features.output_size, []
        for number in range(num_layers):
            size += self._extra_size(number)
            layers.append(Recurrent(cell, size, hidden_size, bidirectional=True))
            size = layers[-1].output_size
        self.layers = nn.ModuleList(layers)
        self.readout = Readout(size + self._extra_size(num_layers), len(self.vocabulary.classes))

    def _extra_size(self, number: int) -> int:
        return int(self.extra_inputs.output_size) if self.place == number else 0  # pyrefly: ignore

    @classmethod
    def of(
        cls,
        sentences: Sentences,
        tags: Sentences,
        columns: Columns | None = None,
        *,
        least: int = 1,
        word_length: int = 20,
        forms: bool = True,
        **options: Any,
    ) -> "Tagger":
        """An untrained tagger for the words, columns and tags of a corpus.

        Words that occur fewer than `least` times are unknown. Of a word longer than `word_length`, only its first and
        last characters are read. `forms`: read the form of words. `options` are those of the constructor.
        """
        tagger = cls(Vocabulary.of(sentences, tags, columns, least, word_length, forms), **options)
        if isinstance(tagger.features.form, SpellingFeatures):
            tagger.features.form.clear_unseen({word for sentence in sentences for word in sentence})
        if isinstance(tagger.output, HMMOutput):
            tagger.output.markov.count([tagger.vocabulary.tag_numbers(row) for row in tags])
        return tagger

    @torch.no_grad()
    def _copy_pretrained(self, vectors: TextVectors) -> None:
        table = self.features.word.weight
        for number, word in enumerate(self.vocabulary.words):
            found = vectors.get(word)
            if found is not None:
                table[RESERVED + number] = found

    # ------------------------------------------------------------------------------------------ encoding

    def encode(
        self, sentences: Sentences, tags: Sentences | None = None, columns: Columns | None = None
    ) -> SequenceSet:
        """Sentences, with their tags for training, as a `SequenceSet` for `rc.data.Batches`."""
        given = self._columns(columns)
        check_sentences(sentences, given if tags is None else {**given, "tags": tags}, self.max_length)
        rows = [self._rows(s, [values[n] for values in given.values()]) for n, s in enumerate(sentences)]
        targets = [torch.zeros(len(row), dtype=torch.int64) for row in rows] if tags is None else self._tags(tags)
        lengths = torch.tensor([len(row) for row in rows])
        return SequenceSet(rows, targets, lengths, "tagging", classes=self.vocabulary.classes, texts=sentences)

    def _rows(self, sentence: Sequence[str], columns: Sequence[Sequence[str]]) -> Tensor:
        own = self.vocabulary.rows(sentence, columns)
        if self.extra_inputs is None:
            return own
        extra = self.extra_inputs.encode(sentence)  # pyrefly: ignore
        if not isinstance(extra, Tensor) or extra.dim() != 2 or len(extra) != len(sentence):
            got = tuple(extra.shape) if isinstance(extra, Tensor) else type(extra).__name__
            raise ShapeError("extra_inputs.encode", got, f"({len(sentence)}, width) int64")
        return torch.cat([own, extra.to(torch.int64)], dim=1)

    def _tags(self, tags: Sentences) -> list[Tensor]:
        numbers = [self.vocabulary.tag_numbers(row, f"tags, sentence {n}") for n, row in enumerate(tags)]
        scheme = self.vocabulary.scheme
        broken = None if scheme is None else violation(tags, scheme)
        if broken is not None:
            number, word = broken
            got = " ".join(tags[number][max(0, word - 1) : word + 1])
            raise InputError(
                f"tags, sentence {number}, word {word}", repr(got), f"the scheme {scheme!r} of the training"
            )
        return numbers

    def _columns(self, columns: Columns | None) -> dict[str, Sentences]:
        given, known = dict(columns or {}), self.vocabulary.columns
        for name in given:
            if name not in known:
                raise UnknownNameError("columns", repr(name), known or "none: the tagger was built without columns")
        for name in known:
            if name not in given:
                raise InputError("columns", f"none named {name!r}", "every column of the training")
        return {name: given[name] for name in known}

    # ------------------------------------------------------------------------------------------ the network

    def forward(self, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Tensor:
        """Words (T, B, width), as `encode` gives them → scores of the tags, (T, B, K)."""
        if not isinstance(x, Tensor) or x.dim() != 3 or x.is_floating_point():
            raise ShapeError("x", tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__, "what encode gives")
        steps, batch = x.shape[:2]
        sizes = torch.full((batch,), steps, device=x.device) if lengths is None else lengths
        sizes = check_lengths(sizes, steps, batch, x.device)
        width = self.vocabulary.width
        y = self._dropout(self.features(x[..., :width], valid_steps(sizes, steps)))
        extra = None if self.extra_inputs is None else self._dropout(self.extra_inputs(x[..., width:], sizes))
        for number, layer in enumerate(self.layers):
            y = self._dropout(layer(self._concat_extra(y, extra, number), lengths=sizes)[0])
        return self.readout(self._concat_extra(y, extra, len(self.layers)))

    def _concat_extra(self, y: Tensor, extra: Tensor | None, number: int) -> Tensor:
        return torch.cat([y, extra.to(y.dtype)], dim=-1) if extra is not None and self.place == number else y

    def _dropout(self, y: Tensor) -> Tensor:
        return F.dropout(y, self.dropout, self.training) if self.dropout else y

    def save(self, folder: str | Path) -> None:
        """Write options, vocabulary and weights to a folder; `Tagger.load` reads it."""
        options = {**self.options, "cell": cell_name(self.options["cell"])}
        config = {"options": options, "vocabulary": self.vocabulary.to_json()}
        write_folder(folder, FolderContents(KIND, config, self.state_dict()))

    @staticmethod
    def load(folder: str | Path, extra_inputs: TokenVectors | None = None) -> "Tagger":
        """The tagger that `save` wrote, in evaluation mode.

        A tagger with extra inputs needs a module of the same kind as `extra_inputs`; its weights are set from the file.
        """
        stored = read_folder(folder, KIND)
        with stored.expecting("the options of a tagger"):
            vocabulary = Vocabulary(**stored.section("vocabulary"))
            with stored.building():
                tagger = Tagger(vocabulary, extra_inputs=extra_inputs, **stored.section("options"))
        tagger.load_state_dict(stored.tensors(like=tagger.state_dict()))
        return tagger.eval()

    def objective(self) -> "TaggerLoss":
        """The loss for `rc.train.fit`: the negative log-likelihood, in nats per word."""
        return TaggerLoss()

    # ------------------------------------------------------------------------------------------ tagging

    def tag(self, sentences: Sentences, columns: Columns | None = None, batch_size: int = 64) -> list[list[str]]:
        """The tags of every sentence, as strings."""
        classes = self.vocabulary.classes
        paths = self._map_sentences(sentences, columns, batch_size, self.output.decode)
        return [[classes[k] for k in path.tolist()] for path in paths]

    def probabilities(self, sentences: Sentences, columns: Columns | None = None, batch_size: int = 64) -> list[Tensor]:
        """p(tag) of every word: one (T, K) tensor per sentence, the tags in the order of `vocabulary.classes`."""
        return self._map_sentences(sentences, columns, batch_size, self.output.marginals)

    @torch.no_grad()
    def _map_sentences(
        self, sentences: Sentences, columns: Columns | None, batch_size: int, apply: Any
    ) -> list[Tensor]:
        """Run `apply(scores, lengths)` for every sentence; sentences of similar length share a batch."""
        data, device, training = self.encode(sentences, None, columns), self.readout.V.device, self.training
        found: list[Tensor] = [torch.empty(0)] * len(sentences)
        self.eval()
        try:
            for ids in data.lengths.argsort(stable=True).split(positive_int("batch_size", batch_size)):
                lengths = data.lengths[ids].to(device)
                x = nn.utils.rnn.pad_sequence([data.inputs[i] for i in ids.tolist()]).to(device)
                answers = apply(self(x, lengths), lengths).cpu()
                for b, i in enumerate(ids.tolist()):
                    found[i] = answers[: int(data.lengths[i]), b]
        finally:
            self.train(training)
        return found


class TaggerLoss:
    """The loss of a tagger for `rc.train.fit`; validation also measures the accuracy of the tags."""

    def count(self, batch: Batch) -> int:
        return int(batch.lengths.sum())

    def __call__(self, model: nn.Module, batch: Batch, state: Any) -> tuple[dict[str, Tensor], Any]:
        tagger: Any = getattr(model, "module", model)  # DistributedDataParallel wraps it
        scores = model(batch.inputs, lengths=batch.lengths)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        sums = {"loss": tagger.output.loss(scores, batch.targets, batch.lengths)}
        if not model.training:
            sums["accuracy"] = (tagger.output.decode(scores, batch.lengths) == batch.targets)[batch.mask].sum()
        return sums, None


def _make_spelling(chars: str | None, characters: int, size: int, features: int) -> CharCNN | CharRNN | None:
    if chars is None:
        return None
    return (CharCNN if chars == "cnn" else CharRNN)(characters, size, features)


def _check_extra_inputs(extra: TokenVectors) -> nn.Module:
    missing = [name for name in ("output_size", "encode", "forward") if not hasattr(extra, name)]
    if missing or not isinstance(extra, nn.Module):
        parts = ", ".join(missing) or "torch.nn.Module"
        raise InputError("extra_inputs", f"{type(extra).__name__} without {parts}", "a module like TokenVectors")
    return extra
