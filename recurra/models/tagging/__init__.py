"""Tags for every step: chains of them (CRF, HMM), entities made of them, and networks that give them."""

from .crf import CRF, START, STOP
from .scores import EntityScores, accuracy, entity_scores

__all__ = ["CRF", "START", "STOP", "EntityScores", "accuracy", "entity_scores"]
