"""Exports a tagger to ONNX: the network by torch's exporter, the Viterbi path as two Scan operators.

Inputs: words `x` (T, B, width) encoded by `Vocabulary.rows`, and `lengths` (B,). Outputs: the best `tags` (T, B), -100
at padding, and `tag_scores` (T, B, K), the scores of each word alone. The metadata have the vocabulary and the classes.
"""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..engine.reference import valid_steps
from ..errors import OptionError
from ..interop.onnx.check import SIZES, Session, difference
from ..interop.onnx.export_errors import ExportError
from ..interop.onnx.graph import Graph
from ..interop.onnx.module import module_model
from ..models.tagging import Tagger
from ..models.tagging.chain import IGNORE
from ..models.tagging.features import CharCNN, CharRNN
from ..models.tagging.tag_outputs import CRFOutput, HMMOutput
from ..models.tagging.tagger_vocabulary import PADDING, UNKNOWN
from .onnx_file import save_checked

TOLERANCE = 1e-5  # of the largest score


def export(tagger: Tagger, path: str | Path) -> Path:
    """Write an ONNX file and return its path."""
    if tagger.extra_inputs is not None:
        raise OptionError("export", "a tagger with extra_inputs", "one without: the file could not hold both networks")
    network = TaggerModule(deepcopy(tagger).cpu().eval())
    x, lengths = _sentences(tagger, 5, 3)
    model = module_model(network, {"x": x, "lengths": lengths})
    _append_viterbi(model.graph, network)
    facts = {"kind": "SequenceTagger", "vocabulary": tagger.vocabulary.to_json(), "classes": tagger.vocabulary.classes}
    return save_checked(model, path, facts, lambda written: _check(written, network.tagger))


class TaggerModule(nn.Module):
    """The network of a tagger without checks of its inputs, with the outputs that the Viterbi Scans need."""

    def __init__(self, tagger: Tagger):
        super().__init__()
        self.tagger = tagger

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores (T, B, K); those of the chain (T, B, K); which steps are inside (T, B, 1), and first (T, 1, 1)."""
        inside = valid_steps(lengths, x.shape[0])
        y = self._features(x, inside)
        for layer in self.tagger.layers:
            y = layer(y, lengths=lengths)[0]
        scores = self.tagger.readout(y)
        output, first = self.tagger.output, torch.arange(x.shape[0], device=x.device)[:, None, None] == 0
        chained = output.markov.chain(scores, lengths).emissions if isinstance(output, HMMOutput) else scores + 0.0
        return scores, chained, inside[..., None], first

    def _features(self, x: Tensor, inside: Tensor) -> Tensor:
        """As in `WordFeatures`, but the spelling of every word is computed, not once per distinct word."""
        features = self.tagger.features
        parts = [features.word(x[..., 0]), *(table(x[..., 1 + k]) for k, table in enumerate(features.column))]
        if features.spelling is not None:
            letters = x[..., features.first_letter :]
            unknown = torch.full_like(letters, UNKNOWN)  # padding has no letters
            letters = torch.where(inside[..., None], letters, unknown)
            spelled = _spelling_vectors(features.spelling, letters.flatten(0, 1)).unflatten(0, (x.shape[0], x.shape[1]))
            parts.append(spelled * inside[..., None])
        if features.form is not None:
            parts.append(features.form(x[..., 1 + features.columns : features.first_letter]))
        return torch.cat(parts, dim=-1)

    def chain(self) -> tuple[Tensor, Tensor, Tensor]:
        """Transition, start and end scores; zeros for an output without a chain."""
        output, count = self.tagger.output, len(self.tagger.vocabulary.classes)
        if isinstance(output, CRFOutput):
            transitions, start, end = output.crf.scores()
        elif isinstance(output, HMMOutput):
            transitions, start, end = (output.markov.get_buffer(name) for name in ("transitions", "start", "end"))
        else:
            transitions, start, end = (torch.zeros(shape) for shape in ((count, count), (count,), (count,)))
        return transitions.detach().float(), start.detach().float(), end.detach().float()


def _spelling_vectors(spelling: CharCNN | CharRNN, letters: Tensor) -> Tensor:
    """`spelling(letters)` for any number of words: the `len` in CharRNN would be a constant in the file."""
    if isinstance(spelling, CharCNN):
        return spelling(letters)
    lengths = (letters != PADDING).sum(dim=1)
    y = spelling.recurrent(spelling.embedding(letters).transpose(0, 1), lengths=lengths)[0]  # (C, N, F)
    half, ends = y.shape[-1] // 2, (lengths - 1)[None, :, None]
    return torch.cat([y.gather(0, ends.expand(1, -1, y.shape[-1]))[0, :, :half], y[0, :, half:]], dim=-1)


# ---------------------------------------------------------------------------------------------------- the best path


def _append_viterbi(onnx_graph: Any, network: TaggerModule) -> None:
    """Append the Viterbi algorithm of `models/tagging/chain.py`; the outputs become `tags` and `tag_scores`."""
    scores, chained, inside, first = [output.name for output in onnx_graph.output]
    shape = [axis.dim_param or axis.dim_value for axis in onnx_graph.output[0].type.tensor_type.shape.dim]
    graph = Graph(torch.float32, prefix="path/")
    count = len(network.tagger.vocabulary.classes)
    transitions, start, end = network.chain()
    batch = graph.add("Slice", graph.add("Shape", chained), graph.integers(1), graph.integers(2))
    begin = graph.add("Expand", graph.number(0.0), graph.join([batch, graph.integers(count)], axis=0))  # (B, K)
    body = _viterbi_step(graph, transitions, start)
    delta, origins = graph.add("Scan", begin, chained, inside, first, outputs=2, body=body, num_scan_inputs=3)
    ends = graph.add("Add", delta, graph.constant(end[None]))
    last = graph.add("ArgMax", ends, axis=1, keepdims=1)  # (B, 1)
    back = {"scan_input_directions": [1], "scan_output_directions": [1]}
    _, path = graph.add("Scan", last, origins, outputs=2, body=_backtrack_step(graph, count), num_scan_inputs=1, **back)
    past = graph.constant(torch.full((1, 1, 1), IGNORE))
    found = graph.add("Squeeze", graph.add("Where", inside, path, past), graph.integers(2))
    graph.nodes.append(graph.helper.make_node("Identity", [found], ["tags"]))
    graph.nodes.append(graph.helper.make_node("Identity", [scores], ["tag_scores"]))
    onnx_graph.node.extend(graph.nodes)
    onnx_graph.initializer.extend(graph.initializers)
    del onnx_graph.output[:]
    outputs = graph.value_info("tags", shape[:2], torch.int64), graph.value_info("tag_scores", shape)
    onnx_graph.output.extend(outputs)


def _viterbi_step(outer: Graph, transitions: Tensor, start: Tensor) -> Any:
    """One Viterbi step: the best score of a path that ends in each tag, and the previous tag of that path."""
    body, count = Graph(torch.float32, outer=outer), len(start)
    delta, emission, inside, first = (body.name(hint) for hint in ("delta", "emission", "inside", "first"))
    pairs = body.add("Add", body.add("Unsqueeze", delta, body.integers(2)), body.constant(transitions[None]))
    best = body.add("ReduceMax", pairs, body.integers(1), keepdims=0)
    origin = body.add("ArgMax", pairs, axis=1, keepdims=0)
    begun = body.add("Add", body.add("Where", first, body.constant(start[None]), best), emission)
    after = body.add("Where", inside, begun, delta)
    kept = body.add("Where", inside, origin, body.constant(torch.arange(count)[None]))
    inputs = [
        body.value_info(delta, ["batch", count]),
        body.value_info(emission, ["batch", count]),
        body.value_info(inside, ["batch", 1], torch.bool),
        body.value_info(first, [1, 1], torch.bool),
    ]
    outputs = [body.value_info(after, ["batch", count]), body.value_info(kept, ["batch", count], torch.int64)]
    return body.helper.make_graph(body.nodes, "viterbi", inputs, outputs)


def _backtrack_step(outer: Graph, count: int) -> Any:
    """One backtracking step: outputs the current tag and moves to the previous one."""
    body = Graph(torch.float32, outer=outer)
    state, origin = body.name("state"), body.name("origin")
    before = body.add("GatherElements", origin, state, axis=1)
    now = body.add("Identity", state)
    inputs = [body.value_info(state, ["batch", 1], torch.int64), body.value_info(origin, ["batch", count], torch.int64)]
    outputs = [body.value_info(before, ["batch", 1], torch.int64), body.value_info(now, ["batch", 1], torch.int64)]
    return body.helper.make_graph(body.nodes, "backtrack", inputs, outputs)


# ---------------------------------------------------------------------------------------------------- the check


def _sentences(tagger: Tagger, steps: int, batch: int) -> tuple[Tensor, Tensor]:
    """Encoded sentences of known and unknown words, the first of full length."""
    vocabulary, random = tagger.vocabulary, np.random.default_rng(steps)
    words = [*vocabulary.words, "?unknown?"]
    lengths = [steps, *random.integers(1, steps + 1, batch - 1).tolist()]
    rows = []
    for length in lengths:
        sentence = [words[k] for k in random.integers(0, len(words), length)]
        columns = [
            [values[k] for k in random.integers(0, len(values), length)] for values in vocabulary.columns.values()
        ]
        rows.append(vocabulary.rows(sentence, columns))
    return nn.utils.rnn.pad_sequence(rows, padding_value=PADDING), torch.tensor(lengths)


@torch.no_grad()
def _check(path: Path, tagger: Tagger) -> None:
    """Compare the file with the tagger at sizes that the export did not use."""
    session = Session(path)
    for steps, batch in SIZES:
        x, lengths = _sentences(tagger, steps, batch)
        found = session({"x": x, "lengths": lengths})
        scores, inside = tagger(x, lengths), valid_steps(lengths, steps)
        expected = scores.masked_fill(~inside[..., None], 0.0)
        given = found["tag_scores"].masked_fill(~inside[..., None], 0.0)
        difference("scores", given, expected, expected.double(), x, TOLERANCE)
        tags = tagger.output.decode(scores, lengths).masked_fill(~inside, IGNORE)
        if not torch.equal(found["tags"], tags):
            raise ExportError(f"for {batch} sentences of up to {steps} words the file's tags differ from the tagger's")
