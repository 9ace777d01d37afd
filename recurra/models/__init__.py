"""Layers and heads put together: time-delay, hierarchical, NARX and bidirectional networks."""

from .brnn import BaldiBRNN
from .hierarchical import ClockworkRNN, HierarchicalRNN
from .narx import NARX
from .tagging import CRF, START, STOP, EntityScores, accuracy, entity_scores
from .tdnn import PEDDINTI, TDNN, PNorm

__all__ = [
    "CRF",
    "NARX",
    "PEDDINTI",
    "START",
    "STOP",
    "TDNN",
    "BaldiBRNN",
    "ClockworkRNN",
    "EntityScores",
    "HierarchicalRNN",
    "PNorm",
    "accuracy",
    "entity_scores",
]
