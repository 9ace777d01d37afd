"""Networks built from layers: time-delay, hierarchical, NARX, bidirectional, taggers, language models, ELMo."""

from .brnn import BaldiBRNN
from .elmo import ELMo, Pretraining, ScalarMix
from .hierarchical import ClockworkRNN, HierarchicalRNN
from .language import (
    Characters,
    LanguageModel,
    LanguageModelVectors,
    MixtureDensity,
    NextFrame,
    NextToken,
    SequenceDensity,
    Subwords,
    Words,
)
from .narx import NARX
from .tagging import (
    CRF,
    HMM,
    START,
    STOP,
    EntityScores,
    HybridHMM,
    Tagger,
    TextVectors,
    TokenVectors,
    Vocabulary,
    accuracy,
    entity_scores,
    ergodic,
    left_right,
    read_vectors,
)
from .tdnn import PEDDINTI, TDNN, PNorm

__all__ = [
    "CRF",
    "HMM",
    "NARX",
    "PEDDINTI",
    "START",
    "STOP",
    "TDNN",
    "BaldiBRNN",
    "Characters",
    "ClockworkRNN",
    "ELMo",
    "EntityScores",
    "HierarchicalRNN",
    "HybridHMM",
    "LanguageModel",
    "LanguageModelVectors",
    "MixtureDensity",
    "NextFrame",
    "NextToken",
    "PNorm",
    "Pretraining",
    "ScalarMix",
    "SequenceDensity",
    "Subwords",
    "Tagger",
    "TextVectors",
    "TokenVectors",
    "Vocabulary",
    "Words",
    "accuracy",
    "entity_scores",
    "ergodic",
    "left_right",
    "read_vectors",
]
