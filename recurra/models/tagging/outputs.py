"""From scores to tags, three ways with one signature: every word for itself, a random field, a hidden Markov model."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from .chain import IGNORE
from .crf import CRF
from .markov import Markov
from .schemes import rules


class Softmax(nn.Module):
    """Every word for itself."""

    def loss(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """The sum over the words of -log p(tag); (T, B, K) scores, (T, B) tags with -100 in padding."""
        return F.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=IGNORE, reduction="sum")

    def decode(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The best tags: (T, B)."""
        return scores.argmax(dim=-1)

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """p(tag) of every word: (T, B, K)."""
        return scores.softmax(dim=-1)


class RandomField(nn.Module):
    """The best sequence of tags; one that the scheme forbids has no chance."""

    def __init__(self, classes: Sequence[str], scheme: str | None):
        super().__init__()
        self.crf = CRF(classes, scheme)

    def loss(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        return -self.crf(scores, tags, lengths).sum()

    def decode(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.crf.viterbi(scores, lengths)[0]

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.crf.marginals(scores, lengths)


class HiddenMarkov(Softmax):
    """Trained word by word, decoded with the tags as states of a hidden Markov model (Graves et al. 2005)."""

    def __init__(self, classes: Sequence[str], scheme: str | None):
        super().__init__()
        self.markov = Markov(len(classes), None if scheme is None else rules(classes, scheme))

    def decode(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.markov.decode(scores, lengths)

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.markov.marginals(scores, lengths)


OUTPUTS = ("softmax", "crf", "hmm")


def output_of(name: str, classes: Sequence[str], scheme: str | None) -> Softmax | RandomField:
    if name == "softmax":
        return Softmax()
    return RandomField(classes, scheme) if name == "crf" else HiddenMarkov(classes, scheme)
