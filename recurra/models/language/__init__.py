"""Language models: vocabularies, stacks of any cell, softmaxes, and what is read out of them."""

from .inputs import Embedding, TokenEncoder
from .mixture import MixtureDensity, NextFrame, SequenceDensity
from .model import IGNORE, LanguageModel, NextToken
from .output import AdaptiveSoftmax, Output, SampledSoftmax, Softmax, TiedSoftmax
from .stack import Stack
from .streams import TwoWayStreams
from .vectors import LanguageModelVectors
from .vocabulary import Characters, Subwords, TextError, Vocabulary, Words

__all__ = [
    "IGNORE",
    "AdaptiveSoftmax",
    "Characters",
    "Embedding",
    "LanguageModel",
    "LanguageModelVectors",
    "MixtureDensity",
    "NextFrame",
    "NextToken",
    "Output",
    "SampledSoftmax",
    "SequenceDensity",
    "Softmax",
    "Stack",
    "Subwords",
    "TextError",
    "TiedSoftmax",
    "TokenEncoder",
    "TwoWayStreams",
    "Vocabulary",
    "Words",
]
