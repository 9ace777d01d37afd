"""Exports a language model to ONNX, for a whole text or token by token.

Inputs: `tokens` (T, B), `lengths` (B,), and the state of every layer, zeros at the start of a text. Outputs:
`log_probabilities` (T, B, V) of the next token, and the states after the last token, `next_state_…`. The metadata
have the vocabulary.
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
    """Write an ONNX file and return its path."""
    if model.direction == "both":
        raise OptionError("export", "a bidirectional model", "a model of one direction")
    file = LanguageModule(deepcopy(model).cpu().eval())
    lengths, tokens = torch.tensor([5, 2, 4]), torch.arange(15).view(5, 3) % len(model.vocabulary)
    with torch.no_grad():
        state = tree_map(torch.zeros_like, file(tokens, lengths, None)[1])
    facts = {"kind": "LanguageModelEstimator", "vocabulary": model.vocabulary.to_config()}
    facts |= {"inputs": "tokens (T, B), lengths (B,), then the state of each layer; zeros at the start of a text"}
    facts |= {"outputs": "log-probabilities (T, B, V) of the next token, then the states after the last"}
    return write(file, path, (tokens, lengths, state), facts, ["log_probabilities"])


class LanguageModule(nn.Module):
    """A language model without checks of its inputs, which cannot be exported."""

    def __init__(self, model: LanguageModel):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor, state: Any) -> tuple[Tensor, Any]:
        outputs, state = self.model.ways[0](self.model.encoder(tokens), state, lengths)
        return self.model.output.log_probs(outputs[-1]), state
