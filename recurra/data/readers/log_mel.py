"""Log-mel spectrogram frames of sound."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ...errors import InputError


@dataclass(frozen=True)
class LogMel:
    """Log-mel frames: windows of `window` seconds every `hop` seconds, the log power in `bands` mel filters.

    mel(f) = 2595 log10(1 + f / 700) (O'Shaughnessy 1987); Hann windows; only a sound shorter than one window is
    padded. `high` is the upper end in Hz, by default half the sampling rate.

    **Example**

        >>> sound = torch.sin(2 * torch.pi * 440 * torch.arange(8000) / 8000)  # a second at 8 kHz
        >>> rc.data.LogMel(bands=20)(sound, 8000).shape
        torch.Size([98, 20])
    """

    bands: int = 40
    window: float = 0.025
    hop: float = 0.010
    low: float = 20.0
    high: float | None = None
    floor: float = 1e-10

    def __post_init__(self):
        if self.bands < 1 or min(self.window, self.hop, self.floor) <= 0:
            raise InputError("LogMel", self, "positive bands, window, hop and floor")

    def samples(self, rate: int) -> tuple[int, int]:
        """Samples in a window, and from one to the next."""
        return max(1, round(self.window * rate)), max(1, round(self.hop * rate))

    def frames(self, samples: int, rate: int) -> int:
        """How many frames a sound of this many samples has."""
        window, hop = self.samples(rate)
        return 1 + max(0, samples - window) // hop

    def __call__(self, sound: Tensor, rate: int) -> Tensor:
        """(samples,) → (T, bands), in the sound's own dtype."""
        window, hop = self.samples(rate)
        if len(sound) < window:
            sound = torch.nn.functional.pad(sound, (0, window - len(sound)))
        size = 1 << (window - 1).bit_length()
        hann, filters = _tables(self, window, size, rate, sound.dtype)
        power = torch.fft.rfft(sound.unfold(0, window, hop) * hann, n=size).abs().square()  # (T, size / 2 + 1)
        return (power @ filters).clamp_min(self.floor).log()

    def filters(self, size: int, rate: int) -> Tensor:
        """Triangles of height one between neighbouring centres: (size / 2 + 1, bands), float64."""
        high = self.high or rate / 2
        if not 0 <= self.low < high <= rate / 2:
            raise InputError("LogMel", f"{self.low} to {high} Hz at {rate} Hz", f"a range below {rate / 2} Hz")
        ends = mel(torch.tensor([self.low, high], dtype=torch.float64))
        edges = hertz(torch.linspace(float(ends[0]), float(ends[1]), self.bands + 2, dtype=torch.float64))
        bins = torch.arange(size // 2 + 1, dtype=torch.float64)[:, None] * rate / size
        rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
        falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
        return torch.minimum(rising, falling).clamp_min(0)


@lru_cache(maxsize=16)
def _tables(mel: LogMel, window: int, size: int, rate: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The cached window and filter bank, which take longer to compute than a short sound."""
    with torch.inference_mode(False):  # cached tensors may later be used in autograd
        return torch.hann_window(window, dtype=dtype), mel.filters(size, rate).to(dtype)


def mel(frequency: Tensor) -> Tensor:
    return 2595 * torch.log10(1 + frequency / 700)


def hertz(pitch: Tensor) -> Tensor:
    return 700 * (10 ** (pitch / 2595) - 1)
