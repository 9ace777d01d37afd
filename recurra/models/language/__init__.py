"""Language models: vocabularies, stacks of any cell, softmaxes, mixture densities, NADE, word vectors from them."""

from .frozen_vectors import LanguageModelVectors
from .inputs import Embedding, TokenEncoder
from .mixture import MixtureDensity, NextFrame, SequenceDensity
from .model import IGNORE, LanguageModel, NextToken
from .nade import NADE, RNNNADE
from .rbm import RBM, RNNRBM, ContrastiveDivergence
from .softmaxes import AdaptiveSoftmax, FullSoftmax, OutputLayer, SampledSoftmax, TiedSoftmax
from .stack import Stack
from .streams import TwoWayStreams
from .vocabulary import Characters, Subwords, TextError, TokenVocabulary, Words

__all__ = [
    "IGNORE",
    "NADE",
    "RBM",
    "RNNNADE",
    "RNNRBM",
    "AdaptiveSoftmax",
    "Characters",
    "ContrastiveDivergence",
    "Embedding",
    "FullSoftmax",
    "LanguageModel",
    "LanguageModelVectors",
    "MixtureDensity",
    "NextFrame",
    "NextToken",
    "OutputLayer",
    "SampledSoftmax",
    "SequenceDensity",
    "Stack",
    "Subwords",
    "TextError",
    "TiedSoftmax",
    "TokenEncoder",
    "TokenVocabulary",
    "TwoWayStreams",
    "Words",
]
