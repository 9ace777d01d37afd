"""Baselines for tagging and language modelling: most frequent tags, unigrams and bigrams."""

import math
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any, Self

import numpy as np

from recurra.models.language.vocabulary import build_vocabulary

Sentences = list[list[str]]


class MostFrequentTag:
    """Predicts the most frequent tag for every word."""

    def fit(self, X: Sentences, y: Sentences) -> Self:
        self.tag_ = Counter(tag for sentence in y for tag in sentence).most_common(1)[0][0]
        self.n_parameters_ = 1
        return self

    def predict(self, X: Sentences) -> Sentences:
        return [[self.tag_] * len(words) for words in X]


class TagPerWord:
    """Predicts the most frequent tag of each word; for an unknown word the most frequent tag overall."""

    def fit(self, X: Sentences, y: Sentences) -> Self:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for words, tags in zip(X, y, strict=True):
            for word, tag in zip(words, tags, strict=True):
                counts[word][tag] += 1
        self.fallback_ = MostFrequentTag().fit(X, y).tag_
        self.tags_ = {word: found.most_common(1)[0][0] for word, found in counts.items()}
        self.n_parameters_ = len(self.tags_)
        return self

    def predict(self, X: Sentences) -> Sentences:
        return [[self.tags_.get(word, self.fallback_) for word in words] for words in X]


class NGramModel:
    """A unigram (order 1) or bigram (order 2) model of tokens.

    Unigrams have add-one smoothing. Bigrams back off to unigrams with Witten–Bell smoothing (Witten & Bell 1991).
    """

    def __init__(self, level: str, order: int):
        self.level, self.order = level, order

    def fit(self, X: str | list[str], y: Any = None) -> Self:
        text = X if isinstance(X, str) else "\n".join(X)
        self.vocabulary_ = build_vocabulary(self.level, text)  # pyrefly: ignore  (it names unknown levels)
        tokens = self.vocabulary_.encode(text).numpy()
        counts = np.bincount(tokens, minlength=len(self.vocabulary_)) + 1.0
        self.unigrams_, self.n_parameters_ = counts / counts.sum(), len(counts)
        self.pairs_: Counter[tuple[int, int]] = Counter()
        if self.order == 2:
            self.pairs_ = Counter(pairwise(tokens.tolist()))
            self.n_parameters_ += len(self.pairs_)
        self.seen_, self.successors_ = Counter[int](), Counter[int]()  # occurrences, distinct successors
        for (before, _), count in self.pairs_.items():
            self.seen_[before] += count
            self.successors_[before] += 1
        return self

    def _probability(self, before: int, token: int) -> float:
        unigram, successors = float(self.unigrams_[token]), self.successors_[before]
        if not successors:
            return unigram
        return (self.pairs_[before, token] + successors * unigram) / (self.seen_[before] + successors)

    def measure(self, X: str | list[str]) -> dict[str, float]:
        """The metrics of `rc.LanguageModelEstimator.measure`, over every token but the first."""
        text = X if isinstance(X, str) else "\n".join(X)
        tokens = self.vocabulary_.encode(text).tolist()
        pairs = pairwise(tokens)
        total = -sum(math.log(self._probability(before, token)) for before, token in pairs)
        nats, characters = total / (len(tokens) - 1), len(self.vocabulary_.decode(tokens[1:]))
        return {
            "nats": nats,
            "perplexity": math.exp(nats),
            "bits_per_character": total / math.log(2) / max(1, characters),
        }
