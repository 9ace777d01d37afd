"""Encoder–decoder: a sequence in, another sequence out."""

from .attention import AdditiveAttention, Attention, DotAttention
from .model import Encoded, EncoderDecoder, NextSymbol
from .pairs import Pairs, Symbols
from .search import beam, greedy

__all__ = [
    "AdditiveAttention",
    "Attention",
    "DotAttention",
    "Encoded",
    "EncoderDecoder",
    "NextSymbol",
    "Pairs",
    "Symbols",
    "beam",
    "greedy",
]
