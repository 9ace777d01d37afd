"""A language model as one ONNX file, which can read a text at once or token by token.

The file takes `tokens` (T, B) in reading order, their `lengths` (B,), and the state of every layer; it gives the
`log_probs` of the token to come after each, (T, B, V), and the states after the last. A text begins with states of
zeros. Its metadata hold the vocabulary.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..errors import OptionError
from ..models.language import LanguageModel
from .onnx_file import write


def export(model: LanguageModel, path: str | Path) -> Path:
    if model.direction == "both":
        raise OptionError("export", "a model of both directions", "one that reads in one direction")
    file = LanguageFile(deepcopy(model).cpu().eval())
    lengths, tokens = torch.tensor([5, 2, 4]), torch.arange(15).view(5, 3) % len(model.vocabulary)
    with torch.no_grad():
        state = tree_map(torch.zeros_like, file(tokens, lengths, None)[1])
    facts = {"kind": "LanguageModelEstimator", "vocabulary": model.vocabulary.to_config()}
    facts |= {"inputs": "tokens (T, B), lengths (B,), then a state for each layer; zeros at the start of a text"}
    facts |= {"outputs": "log-probabilities (T, B, V) of the next token, then the states after the last"}
    return write(file, path, (tokens, lengths, state), facts)


class LanguageFile(nn.Module):
    """A language model with no question about the numbers it gets."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, Any]:
        outputs, state = self.model.ways[0](self.model.encoder(tokens), state, lengths)
        return self.model.output.log_probs(outputs[-1]), state
