"""Layers and heads put together: time-delay, hierarchical, NARX and bidirectional networks."""

from .brnn import BaldiBRNN
from .hierarchical import ClockworkRNN, HierarchicalRNN
from .narx import NARX
from .tdnn import PEDDINTI, TDNN, PNorm

__all__ = ["NARX", "PEDDINTI", "TDNN", "BaldiBRNN", "ClockworkRNN", "HierarchicalRNN", "PNorm"]
