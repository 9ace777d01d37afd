"""Sequence tagging: CRF and HMM chains, tagging schemes and their scores, and the Tagger network."""

from .crf import CRF, START, STOP
from .features import TokenVectors
from .hmm import HMM, ergodic, left_right
from .markov import HybridHMM
from .pretrained_vectors import TextVectors, read_vectors
from .scores import EntityScores, accuracy, entity_scores
from .spelling import SpellingFeatures
from .tagger import Tagger
from .tagger_vocabulary import Vocabulary

__all__ = [
    "CRF",
    "HMM",
    "START",
    "STOP",
    "EntityScores",
    "HybridHMM",
    "SpellingFeatures",
    "Tagger",
    "TextVectors",
    "TokenVectors",
    "Vocabulary",
    "accuracy",
    "entity_scores",
    "ergodic",
    "left_right",
    "read_vectors",
]
