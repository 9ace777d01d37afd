"""Tags for every step: chains of them (CRF, HMM), entities made of them, and networks that give them."""

from .crf import CRF, START, STOP
from .features import TokenVectors
from .hmm import HMM, ergodic, left_right
from .markov import HybridHMM
from .scores import EntityScores, accuracy, entity_scores
from .tagger import Tagger
from .vectors import TextVectors, read_vectors
from .vocabulary import Vocabulary

__all__ = [
    "CRF",
    "HMM",
    "START",
    "STOP",
    "EntityScores",
    "HybridHMM",
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
