"""Learn from recordings, then listen: a whistle is detected frame by frame as the sound comes in.

    python examples/stream_microphone.py                             # a generator stands in for the microphone

Training reads whole recordings at once; listening calls `layer.step` for every 10 ms and carries the state. Both
compute the same numbers, which the program checks. Replace `microphone` by your sound card's blocks of samples.
"""

import argparse
import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import recurra as rc

RATE, FRAME, BANDS = 8000, 80, 16  # samples a second, samples a frame (10 ms), features a frame


def microphone(seconds: float, seed: int) -> Iterator[tuple[Tensor, bool]]:
    """Frames of noise with a whistle now and then, and whether it sounds; hums and clicks try to mislead."""
    draw, whistling, pitch, phase = torch.Generator().manual_seed(seed), False, 0.0, 0.0
    for _ in range(int(seconds * RATE / FRAME)):
        chance = torch.rand(3, generator=draw)
        if chance[0] < 0.03:
            whistling, pitch = not whistling, 900.0 + 1500.0 * float(chance[1])
        time_axis = torch.arange(FRAME) / RATE
        sound = 0.5 * torch.randn(FRAME, generator=draw) + 0.6 * torch.sin(2 * math.pi * 100 * time_axis)
        sound[int(chance[2] * FRAME)] += 3.0
        if whistling:
            sound += 0.5 * torch.sin(2 * math.pi * pitch * time_axis + phase)
            phase += 2 * math.pi * pitch * FRAME / RATE
        yield sound, whistling


def features(frame: Tensor) -> Tensor:
    """Log energy in bands of equal width: (BANDS,)."""
    power = torch.fft.rfft(frame * torch.hann_window(FRAME)).abs().square()[1:33]
    return (power.view(BANDS, -1).mean(1) + 1e-3).log() - 2


def recording(seconds: float, seed: int) -> tuple[Tensor, Tensor]:
    frames, answers = zip(*microphone(seconds, seed), strict=True)
    return torch.stack([features(frame) for frame in frames]), torch.tensor(answers).long()  # (T, BANDS), (T,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to listen")
    chosen = parser.parse_args()

    torch.manual_seed(0)
    X, y = zip(*(recording(4.0, seed) for seed in range(chosen.recordings)), strict=True)
    data = rc.data.SequenceSet.from_arrays(list(X), list(y), "tagging")
    model = rc.train.Predictor(rc.GRU(BANDS, 24), nn.Linear(24, 2))
    rc.train.fit(model, data, epochs=chosen.epochs, batch_size=8, lr=0.01, device="cpu", progress=False)

    model.eval()
    heard, outputs, right, state, line, slowest = [], [], 0, None, "", 0.0
    with torch.inference_mode():
        for frame, truth in microphone(chosen.seconds, seed=10_000):
            began = time.perf_counter()
            heard.append(features(frame))
            y_t, state = model.layer.step(heard[-1], state)  # (BANDS,) → (24,)
            answer = bool(model.head(y_t).argmax())
            outputs.append(y_t)
            slowest = max(slowest, time.perf_counter() - began)
            right += answer == truth
            line += "█" if answer else "·"
        whole, _ = model.layer(torch.stack(heard)[:, None])
    assert torch.allclose(whole[:, 0], torch.stack(outputs), atol=1e-5), "streaming and the whole recording agree"

    print("\n".join(line[k : k + 100] for k in range(0, len(line), 100)), " one sign is 10 ms")
    print(f"{right / len(line):.1%} of {len(line)} frames right; the slowest frame took {1000 * slowest:.1f} ms")


if __name__ == "__main__":
    main()
