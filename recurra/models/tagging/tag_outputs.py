"""Output layers of a tagger with one signature: softmax, conditional random field, hidden Markov model."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from .chain import IGNORE
from .crf import CRF
from .markov import MarkovChain
from .schemes import allowed_transitions


class SoftmaxOutput(nn.Module):
    """Independent tags: the best tag of every word."""

    def loss(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """The sum of -log p(tag) over all words; scores (T, B, K), tags (T, B) with -100 in padding."""
        return F.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=IGNORE, reduction="sum")

    def decode(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """The best tags: (T, B)."""
        return scores.argmax(dim=-1)

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """p(tag) of every word: (T, B, K)."""
        return scores.softmax(dim=-1)


class CRFOutput(nn.Module):
    """A CRF: the best sequence of tags that the scheme allows."""

    def __init__(self, classes: Sequence[str], scheme: str | None):
        super().__init__()
        self.crf = CRF(classes, scheme)

    def loss(self, scores: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        return -self.crf(scores, tags, lengths).sum()

    def decode(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.crf.viterbi(scores, lengths)[0]

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.crf.marginals(scores, lengths)


class HMMOutput(SoftmaxOutput):
    """Trained like a softmax, decoded with the tags as states of a hidden Markov model (Graves et al. 2005)."""

    def __init__(self, classes: Sequence[str], scheme: str | None):
        super().__init__()
        self.markov = MarkovChain(len(classes), None if scheme is None else allowed_transitions(classes, scheme))

    def decode(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.markov.decode(scores, lengths)

    def marginals(self, scores: Tensor, lengths: Tensor) -> Tensor:
        return self.markov.marginals(scores, lengths)


OUTPUTS = ("softmax", "crf", "hmm")


def make_output(name: str, classes: Sequence[str], scheme: str | None) -> SoftmaxOutput | CRFOutput:
    if name == "softmax":
        return SoftmaxOutput()
    return CRFOutput(classes, scheme) if name == "crf" else HMMOutput(classes, scheme)
