"""Baselines for turning texts into texts: the source itself, and the target of the most similar source."""

from typing import Any, Self

import numpy as np

NGRAMS = (1, 3)  # characters


class CopiedSource:
    """Writes the source."""

    def fit(self, X: list[str], y: list[str]) -> Self:
        self.n_parameters_ = 0
        return self

    def predict(self, X: list[str]) -> list[str]:
        return list(X)


class NearestSource:
    """Writes the target of the training source with the most similar n-grams of characters (cosine of TF-IDF)."""

    def fit(self, X: list[str], y: list[str]) -> Self:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.counts_: Any = TfidfVectorizer(analyzer="char", ngram_range=NGRAMS, lowercase=False)
        self.sources_ = self.counts_.fit_transform(X)
        self.targets_ = list(y)
        self.n_parameters_ = int(self.sources_.nnz)  # pyrefly: ignore
        return self

    def predict(self, X: list[str]) -> list[str]:
        sources: Any = self.sources_
        similar = self.counts_.transform(X) @ sources.T
        return [self.targets_[k] for k in np.asarray(similar.argmax(axis=1)).ravel().tolist()]
