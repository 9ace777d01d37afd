"""ELMo: a character encoder, a bidirectional language model, and a learned sum of its layers."""

from .characters import CharacterEncoder, WordCharacters
from .mix import ScalarMix
from .model import ELMo
from .pretrain import Pretraining

__all__ = ["CharacterEncoder", "ELMo", "Pretraining", "ScalarMix", "WordCharacters"]
