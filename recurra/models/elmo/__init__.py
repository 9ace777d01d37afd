"""ELMo: characters, a language model that reads both ways, and the mix of its layers."""

from .characters import CharacterEncoder, WordCharacters
from .mix import ScalarMix
from .model import ELMo
from .pretrain import Pretraining

__all__ = ["CharacterEncoder", "ELMo", "Pretraining", "ScalarMix", "WordCharacters"]
