"""Spoken digits: a time-delay network and a bidirectional LSTM on 2,700 recordings, tested on 300."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import recurra as rc

DIGITS = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "spoken_digits" / "recordings.zip"


BANDS = 30


def digits() -> dict[str, Any]:
    """The official split: index 0 to 4 of every speaker and digit is for testing."""
    frames, labels, test = recordings()
    accuracy = {}
    for name, build in {"TDNN": digit_tdnn, "BiLSTM": BiLSTM}.items():
        torch.manual_seed(0)
        accuracy[name] = round(100 * train_on_digits(build(), frames, labels, test), 2)
    return {
        "what": f"Spoken digits, official split ({int((~test).sum())} / {int(test.sum())}): test accuracy in %",
        "found": accuracy,
        "wanted": "≥ 98 for both",
    }


def recordings(speaker: str = "") -> tuple[list[Tensor], Tensor, Tensor]:
    """Log-mel frames every 20 ms, scaled by the training frames; labels; which ones are for testing.

    Of all six speakers, or of one.
    """
    from recurra.data import LogMel, read_wav

    sounds = read_wav(DIGITS, LogMel(bands=BANDS, window=0.03, hop=0.02), label=True)
    assert sounds.names is not None
    names = {name: k for k, name in enumerate(sounds.names) if speaker in name}
    test = torch.tensor([int(name.rpartition("_")[2].split(".")[0]) < 5 for name in names])
    examples = [sounds[k] for k in names.values()]
    seen = torch.cat([e.inputs for e, held_out in zip(examples, test, strict=True) if not held_out])
    mean, std = seen.mean(dim=0), seen.std(dim=0)
    frames = [(e.inputs - mean) / std for e in examples]
    return frames, torch.tensor([int(e.target) for e in examples]), test


def digit_tdnn() -> nn.Module:
    contexts = [(-2, -1, 0, 1, 2), (-2, 0, 2), (-3, 0, 3), (0,)]
    return rc.TDNN(
        BANDS, [96, 96, 96, 10], contexts, nonlinearity="relu", output="identity", padding="edge", integrate="mean"
    )


class BiLSTM(nn.Module):
    """Both directions, averaged over each recording's own length, and a linear readout."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = rc.LSTM(BANDS, 64, bidirectional=True)
        self.readout = rc.Readout(self.recurrent, 10)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.readout(self.recurrent(x, lengths=lengths)[0].sum(dim=0) / lengths[:, None])


def train_on_digits(model: nn.Module, frames: list[Tensor], labels: Tensor, test: Tensor, epochs: int = 12) -> float:
    """The share of test recordings that are heard right."""
    chosen = (~test).nonzero().squeeze(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    batches = -(-len(chosen) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * batches)
    for _ in range(epochs):
        lengths = torch.tensor([len(frames[i]) for i in chosen]) + 5.0 * torch.rand(len(chosen))
        alike = chosen[lengths.argsort()].split(64)  # recordings of about one length need little padding
        for batch in (alike[k] for k in torch.randperm(len(alike))):
            x, lengths = padded([warped(frames[i]) for i in batch])
            loss = nn.functional.cross_entropy(model(x, lengths), labels[batch], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    held_out = test.nonzero().squeeze(1)
    with torch.no_grad():
        x, lengths = padded([frames[i] for i in held_out])
        return float((model(x, lengths).argmax(dim=-1) == labels[held_out]).double().mean())


def warped(frames: Tensor) -> Tensor:
    """A recording a little louder or softer, with one band of frequencies silenced: it must not be learned by heart."""
    band = int(torch.randint(0, BANDS - 3, ()))
    changed = frames + 0.3 * torch.randn(())
    changed[:, band : band + 4] = 0.0
    return changed


def padded(frames: list[Tensor]) -> tuple[Tensor, Tensor]:
    return nn.utils.rnn.pad_sequence(frames), torch.tensor([len(f) for f in frames])
