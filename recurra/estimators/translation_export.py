"""Exports an encoder–decoder to two ONNX files: one reads a source, one writes its target step by step."""

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..models.seq2seq import Encoded, EncoderDecoder
from .onnx_file import write

if TYPE_CHECKING:
    from .translation import SequenceToSequence


class EncoderModule(nn.Module):
    """Source tokens (S, B) and lengths (B,) → memory, valid, summary and the first state of the decoder."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Any]:
        assert self.model.source is not None
        encoded, state = self.model.encode_checked(self.model.source(source), lengths)
        return encoded.memory, encoded.valid, encoded.summary, state


class DecoderModule(nn.Module):
    """Tokens (T, B), what the encoder returned, and the state → log-probabilities (T, B, V) and the new state."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, memory: Tensor, valid: Tensor, summary: Tensor, state: Any) -> tuple[Tensor, Any]:
        logits, state = self.model.decode(tokens, Encoded(memory, valid, summary), state)
        return logits.log_softmax(-1), state


def export(estimator: "SequenceToSequence", folder: str | Path) -> tuple[Path, Path]:
    """Write both files into a folder, which is made if it is missing, and return their paths."""
    from ..interop.onnx.export_errors import package

    model, folder = deepcopy(estimator.model_).cpu().eval(), Path(folder)
    symbols = {"source": estimator.source_symbols_.symbols, "target": estimator.target_symbols_.symbols}
    facts = {"kind": type(estimator).__name__, "symbols": symbols, "level": estimator.level}
    facts |= {"start": model.start, "stop": model.stop, "first_symbol": 3}
    reader, writer = EncoderModule(model), DecoderModule(model)
    source, lengths = torch.arange(15).view(5, 3) % len(estimator.source_symbols_), torch.tensor([5, 2, 4])
    if not folder.exists():
        folder.mkdir(parents=True)
    with torch.no_grad():
        *read, state = reader(source, lengths)
    tokens = torch.arange(6).view(2, 3) % len(estimator.target_symbols_)
    second = write(writer, folder / "decoder.onnx", (tokens, *read, state), facts, ["log_probabilities"])
    inputs = [given.name for given in package("onnx").load(second).graph.input]
    names = ["memory", "valid", "summary", *(name for name in inputs if name.startswith("state"))]
    return write(reader, folder / "encoder.onnx", (source, lengths), facts, names), second
