"""Sound: every sample format, and log-mel frames against formulas written out in NumPy and against SciPy."""

import io
import struct
import zipfile

import numpy as np
import pytest
import torch
from scipy.io import wavfile
from scipy.signal import stft

from recurra.data import LogMel, read, read_wav
from recurra.data.data_errors import DataError, EmptyFileError, FormatError, SizeError
from recurra.data.readers.wav import WavFile
from recurra.errors import InputError

RATE = 8000
TONE = 0.6 * np.sin(2 * np.pi * 440 * np.arange(4000) / RATE)


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


def riff(*chunks: bytes) -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def fmt(kind: int, channels: int, rate: int, bits: int, extra: bytes = b"") -> bytes:
    width = channels * bits // 8
    return chunk(b"fmt ", struct.pack("<HHIIHH", kind, channels, rate, rate * width, width, bits) + extra)


def encoded(values: np.ndarray, kind: int, bits: int) -> bytes:
    if kind == 3:
        return values.astype(f"<f{bits // 8}").tobytes()
    if bits == 8:
        return np.round(values * 128 + 128).astype(np.uint8).tobytes()
    unpadded_batch = np.round(values * 2 ** (bits - 1)).astype(np.int64)
    return b"".join(int(v).to_bytes(bits // 8, "little", signed=True) for v in unpadded_batch)


@pytest.mark.parametrize(("kind", "bits"), [(1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64)])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("extensible", [False, True])
def test_every_sample_format(tmp_path, kind, bits, channels, extensible):
    left, right = TONE, 0.5 * TONE if channels == 2 else TONE
    together = np.stack([left, right][:channels], axis=1).reshape(-1)
    extra = struct.pack("<HHIH", 22, bits, 0, kind) + b"\0" * 14 if extensible else b""
    header = fmt(0xFFFE if extensible else kind, channels, RATE, bits, extra)
    path = tmp_path / "tone.wav"
    path.write_bytes(riff(header, chunk(b"LIST", b"odd"), chunk(b"data", encoded(together, kind, bits))))
    samples, rate = WavFile(path).samples()
    assert rate == RATE
    tolerance = 2.0 ** -min(bits, 24) * 2
    assert np.abs(samples.numpy() - (left + right) / 2).max() < tolerance


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.float32])
def test_files_written_by_scipy(tmp_path, dtype):
    path = tmp_path / "tone.wav"
    values = {np.uint8: TONE * 127 + 128, np.int16: TONE * 32767, np.int32: TONE * (2**31 - 1)}.get(dtype, TONE)
    wavfile.write(path, 22050, values.astype(dtype))
    samples, rate = WavFile(path).samples()
    assert rate == 22050
    assert np.abs(samples.numpy() - TONE).max() < (0.02 if dtype is np.uint8 else 1e-4)


def mel_by_hand(sound: np.ndarray, rate: int, bands: int, low: float, high: float) -> np.ndarray:
    """The definition, one number at a time."""
    window, hop = round(0.025 * rate), round(0.010 * rate)
    size = 1
    while size < window:
        size *= 2
    edges = [
        700 * (10 ** (m / 2595) - 1)
        for m in np.linspace(*(2595 * np.log10(1 + f / 700) for f in (low, high)), bands + 2)
    ]
    frames = []
    for start in range(0, len(sound) - window + 1, hop):
        piece = [sound[start + n] * (0.5 - 0.5 * np.cos(2 * np.pi * n / window)) for n in range(window)]
        power = np.abs(np.fft.rfft(piece, size)) ** 2
        row = []
        for k in range(bands):
            energy = 0.0
            for j, p in enumerate(power):
                f = j * rate / size
                if edges[k] < f <= edges[k + 1]:
                    energy += p * (f - edges[k]) / (edges[k + 1] - edges[k])
                elif edges[k + 1] < f < edges[k + 2]:
                    energy += p * (edges[k + 2] - f) / (edges[k + 2] - edges[k + 1])
            row.append(np.log(max(energy, 1e-10)))
        frames.append(row)
    return np.array(frames)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100])
def test_log_mel_is_its_formula(rate):
    sound = np.random.default_rng(0).standard_normal(rate // 10)
    mel = LogMel(bands=12, low=50.0)
    found = mel(torch.from_numpy(sound), rate)
    expected = mel_by_hand(sound, rate, 12, 50.0, rate / 2)
    assert found.shape == expected.shape == (mel.frames(len(sound), rate), 12)
    assert np.abs(found.numpy() - expected).max() < 1e-9


def test_power_is_that_of_scipys_stft():
    """Sum over a filterbank of ones, from SciPy's spectra, with its scaling undone."""
    sound = np.random.default_rng(1).standard_normal(4000)
    _, _, spectra = stft(sound, RATE, window="hann", nperseg=200, noverlap=120, nfft=256, boundary=None, padded=False)
    power = np.abs(spectra * 100) ** 2  # SciPy divides by the sum of the window, which is 100
    expected = np.log(power.T @ LogMel().filters(256, RATE).numpy())
    assert np.abs(LogMel()(torch.from_numpy(sound), RATE).numpy() - expected).max() < 1e-9


def test_kept_filters_are_those_of_the_sound_asked():
    """The filter bank is made once; another rate, another dtype or another setting has its own."""
    sound = torch.from_numpy(TONE)
    with torch.inference_mode():
        LogMel(bands=7)(sound, RATE)
    first = LogMel(bands=7)(sound.requires_grad_(), RATE)
    first.sum().backward()  # what was kept under inference mode serves a gradient too
    assert sound.grad is not None
    sound = sound.detach()
    for mel, other, rate in ((LogMel(bands=7), sound.float(), RATE), (LogMel(bands=7, low=90.0), sound, RATE)):
        found = mel(other, rate)
        assert found.dtype == other.dtype
        expected = mel_by_hand(TONE, rate, 7, mel.low, rate / 2)
        assert np.abs(found.numpy() - expected).max() < (1e-9 if other.dtype == torch.float64 else 1e-2)
    assert not torch.equal(LogMel(bands=7)(sound, 2 * RATE)[:10], first.detach()[:10])


def test_a_tone_is_loudest_in_the_band_around_it():
    mel = LogMel(bands=20)
    frames = mel(torch.from_numpy(TONE), RATE)
    filters = mel.filters(256, RATE)
    nearest = filters[round(440 * 256 / RATE)].argmax()
    assert (frames.argmax(dim=1) == nearest).all()


def test_a_sound_shorter_than_a_window_is_one_frame():
    assert LogMel()(torch.ones(10), RATE).shape == (1, 40)
    assert LogMel().frames(10, RATE) == 1


@pytest.mark.parametrize("options", [{"bands": 0}, {"hop": 0.0}, {"low": 5000.0}, {"high": 5000.0}])
def test_impossible_mel_settings(options):
    with pytest.raises(InputError):
        LogMel(**options)(torch.ones(400), RATE)


def written(values: np.ndarray, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    wavfile.write(file, rate, values.astype(np.float32))
    return file.getvalue()


def test_a_single_file_predicts_its_frames(tmp_path):
    path = tmp_path / "tone.wav"
    path.write_bytes(written(TONE))
    data = read(path)
    assert (data.task, data.lengths.tolist(), data.input_size) == ("next_step", [47], 40)
    assert data[0].inputs.shape == (47, 40)


@pytest.mark.parametrize("where", ["zip", "folder"])
def test_names_give_classes_and_the_lowest_rate_the_range(tmp_path, where):
    sounds = {
        "7_ann_0.wav": written(TONE),
        "3_bob_1.wav": written(TONE[:1000], 16000),
        "7_bob_2.wav": written(TONE[:3000]),
    }
    path = tmp_path / "sounds"
    if where == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in sounds.items():
                archive.writestr(f"inside/{name}", content)
    else:
        path.mkdir()
        for name, content in sounds.items():
            (path / name).write_bytes(content)
    data = read(path)
    assert (data.task, data.classes) == ("classification", ("3", "7"))
    assert data.names == ["3_bob_1.wav", "7_ann_0.wav", "7_bob_2.wav"]
    assert data.targets.tolist() == [0, 1, 1]
    assert [len(example.inputs) for example in data] == data.lengths.tolist()
    expected = LogMel(high=4000.0)(torch.from_numpy(TONE[:1000]).float(), 16000)
    assert torch.allclose(data[0].inputs, expected, atol=1e-5)
    assert read_wav(path, label=False).task == "next_step"


def test_headers_that_lie(tmp_path):
    path = tmp_path / "lying.wav"
    good = fmt(1, 1, RATE, 16)
    path.write_bytes(riff(good, b"data" + struct.pack("<I", 1 << 30) + b"\0\0"))
    with pytest.raises(SizeError, match="declares 1,073,741,824 bytes"):
        read(path)
    path.write_bytes(riff(good, b"junk" + struct.pack("<I", 1 << 30) + b"\0\0"))
    with pytest.raises(SizeError):
        read(path)
    path.write_bytes(riff(good, b"data" + struct.pack("<I", 0xFFFFFFFF) + b"\0\0" * 500))  # a recorder's stream
    assert len(WavFile(path).samples()[0]) == 500


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"RIFF", FormatError),
        (riff(fmt(1, 1, RATE, 16)), FormatError),
        (riff(chunk(b"data", b"\0\0")), FormatError),
        (riff(fmt(1, 1, RATE, 12), chunk(b"data", b"\0\0")), FormatError),
        (riff(fmt(85, 2, RATE, 16), chunk(b"data", b"\0\0")), FormatError),
        (riff(fmt(1, 0, RATE, 16), chunk(b"data", b"\0\0")), FormatError),
        (riff(chunk(b"fmt ", b"\1\0"), chunk(b"data", b"\0\0")), FormatError),
        (riff(fmt(1, 1, RATE, 16), chunk(b"data", b"")), EmptyFileError),
    ],
)
def test_files_that_are_no_sound(tmp_path, content, error):
    path = tmp_path / "broken.wav"
    path.write_bytes(content)
    with pytest.raises(error):
        read_wav(path)


def test_a_damaged_zip(tmp_path):
    path = tmp_path / "broken.zip"
    path.write_bytes(b"PK\x03\x04" + b"nonsense" * 10)
    with pytest.raises(DataError):
        read(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("1_a.wav", written(TONE))
        archive.writestr("2_a.wav", written(TONE))
    content = bytearray(path.read_bytes())
    content[5000] ^= 0xFF  # inside the first sound
    path.write_bytes(content)
    data = read(path)
    with pytest.raises(FormatError, match="CRC"):
        data[0]
    assert len(data[1].inputs) == 48
