"""Reads WAV files, single, in a folder or in a zip: any rate, any number of channels, 8 to 32 bits or float."""

import os
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from ..data_errors import EmptyFileError, FormatError, SizeError
from ..sequences import SequenceSet
from .labels import Encoder, classes_of
from .log_mel import LogMel
from .open_files import ZIP, ZIP_ERRORS, existing, open_zip

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
STREAMED = 0xFFFFFFFF  # the size in a stream whose length was not known

#: bytes of sound one file may hold
LIMIT = 4 << 30


@dataclass(frozen=True)
class WavHeader:
    """The header of a WAV file."""

    kind: int
    channels: int
    rate: int
    bits: int
    size: int  # bytes of sound

    @property
    def samples(self) -> int:
        return self.size // (self.channels * self.bits // 8)


@dataclass(frozen=True)
class WavFile:
    """A WAV file, or a member of a zip."""

    path: Path
    member: str | None = None

    @property
    def label(self) -> str:
        """The name up to the first underscore: `7_jackson_32.wav` is a 7."""
        return Path(self.member or self.path.name).stem.split("_")[0]

    @property
    def name(self) -> str:
        return Path(self.member or self.path.name).name

    def header(self) -> WavHeader:
        return self._parse(keep=False)[0]

    def samples(self) -> tuple[Tensor, int]:
        """(samples,) in [-1, 1], channels averaged, and the rate."""
        header, data = self._parse(keep=True)
        return samples_of(header, data), header.rate

    def _parse(self, keep: bool) -> tuple[WavHeader, bytes]:
        where = self.path if self.member is None else f"{self.path}:{self.member}"
        if self.member is None:
            with self.path.open("rb") as file:
                return parse(file, self.path.stat().st_size, where, keep)
        archive = _archive(self.path, os.getpid())
        try:
            with archive.open(self.member) as file:
                return parse(file, archive.getinfo(self.member).file_size, where, keep)
        except ZIP_ERRORS as error:
            raise FormatError(where, f"a damaged or unusual zip ({error})", "a plain zip") from error


@dataclass(frozen=True)
class LogMelFrames:
    """Sounds as log-mel frames (T, bands), computed on access."""

    sounds: Sequence[WavFile]
    mel: LogMel

    def __len__(self) -> int:
        return len(self.sounds)

    def __getitem__(self, index: int) -> Tensor:
        return self.mel(*self.sounds[index].samples()).to(torch.get_default_dtype())


def read_wav(
    path: str | Path,
    mel: LogMel | None = None,
    label: bool | None = None,
    classes: Sequence[str] | None = None,
) -> SequenceSet:
    """Log-mel frames of a WAV file, or of all those in a folder or a zip.

    If all of several file names have an underscore, the part before it is the class, unless `label=False`. Otherwise
    the targets are the next frames.

    **Example**

        >>> import wave
        >>> for name, step in (("low_1", 16), ("high_1", 64)):  # the part before the underscore is the class
        ...     with wave.open(f"{name}.wav", "wb") as file:
        ...         file.setparams((1, 1, 8000, 0, "NONE", ""))
        ...         _ = file.writeframes(bytes(step * t % 256 for t in range(4000)))
        >>> data = rc.data.read_wav(".", rc.data.LogMel(bands=20))
        >>> data.classes, data.lengths.tolist(), data.input_size
        (('high', 'low'), [48, 48], 20)
    """
    path = existing(path)
    sounds = _sounds(path)
    headers = [sound.header() for sound in sounds]
    mel = mel or LogMel()
    if mel.high is None:
        mel = replace(mel, high=min(header.rate for header in headers) / 2)  # present in every file
    lengths = torch.tensor([mel.frames(header.samples, header.rate) for header in headers])
    store, names = LogMelFrames(sounds, mel), [sound.name for sound in sounds]
    about = {"names": names, "features": tuple(f"mel{k}" for k in range(mel.bands)), "source": str(path)}
    labelled = all("_" in name for name in names) and len(names) > 1 if label is None else label
    if not labelled:
        return SequenceSet.one_step_ahead(store, lengths, "next_step", **about)
    marks = [sound.label for sound in sounds]
    encoder = Encoder(classes or classes_of(marks), path, "file name")
    return SequenceSet(store, encoder.encode(marks), lengths, "classification", classes=encoder.known, **about)


def _sounds(path: Path) -> list[WavFile]:
    if path.is_dir():
        sounds = [WavFile(file) for file in sorted(path.rglob("*.wav"))]
    elif _starts_with(path, ZIP):
        with open_zip(path) as archive:
            sounds = [WavFile(path, name) for name in sorted(archive.namelist()) if name.lower().endswith(".wav")]
    else:
        sounds = [WavFile(path)]
    if not sounds:
        raise EmptyFileError(path, "no .wav file", "at least one")
    return sounds


@lru_cache(maxsize=8)
def _archive(path: Path, process: int) -> zipfile.ZipFile:
    """A cached open zip; one per process, since forked processes share file positions."""
    return zipfile.ZipFile(path)


def _starts_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def parse(file: IO[bytes], size: int, where: str | Path, keep: bool) -> tuple[WavHeader, bytes]:
    """The header and, with `keep`, the bytes of sound; sizes larger than the file are errors."""
    riff = file.read(12)
    if len(riff) < 12 or riff[:4] != b"RIFF" or riff[8:] != b"WAVE":
        raise FormatError(where, repr(riff[:12]), "a WAV file, which begins with RIFF….WAVE")
    header, position = None, 12
    while len(chunk := file.read(8)) == 8:
        name, length = struct.unpack("<4sI", chunk)
        position += 8
        if name == b"data":
            return _data(file, header, length, size - position, where, keep)
        if length > size - position:
            raise SizeError(
                where, f"a chunk {name!r} of {length:,} bytes", f"at most the {size - position:,} that follow"
            )
        body = file.read(length + length % 2)
        position += len(body)
        header = _format(body, where) if name == b"fmt " else header
    raise FormatError(where, "no chunk 'data'", "a WAV file with sound")


def _data(file: IO[bytes], header, length: int, rest: int, where, keep: bool) -> tuple[WavHeader, bytes]:
    if header is None:
        raise FormatError(where, "no chunk 'fmt ' before 'data'", "a WAV file")
    length = rest if length == STREAMED else length
    if length > rest or length > LIMIT:
        raise SizeError(
            where, f"a header that declares {length:,} bytes of sound", f"the {rest:,} that follow, or less"
        )
    length -= length % (header.channels * header.bits // 8)
    if not length:
        raise EmptyFileError(where, "no sound", "at least one sample")
    return replace(header, size=length), file.read(length) if keep else b""


def _format(body: bytes, where: str | Path) -> WavHeader:
    if len(body) < 16:
        raise FormatError(where, f"a chunk 'fmt ' of {len(body)} bytes", "16 bytes or more")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", body[:16])
    if kind == EXTENSIBLE and len(body) >= 26:
        kind = struct.unpack("<H", body[24:26])[0]
    if (kind, bits) not in _DECODERS or not 1 <= channels <= 64 or not 1 <= rate <= 1_000_000:
        got = f"format {kind}, {bits} bits, {channels} channels, {rate} Hz"
        raise FormatError(where, got, "PCM of 8, 16, 24 or 32 bits, or floating point of 32 or 64")
    return WavHeader(kind, channels, rate, bits, 0)


def samples_of(header: WavHeader, data: bytes) -> Tensor:
    """(samples,) float32 in [-1, 1], the channels averaged."""
    values = _DECODERS[header.kind, header.bits](data).float()
    return values.reshape(-1, header.channels).mean(dim=1)


def _integers(dtype: torch.dtype, zero: int, full: int):
    return lambda data: (torch.frombuffer(bytearray(data), dtype=dtype).double() - zero) / full


def _three_bytes(data: bytes) -> Tensor:
    """24 bits, little endian: put below an empty low byte, they are the high part of 32."""
    parts = torch.frombuffer(bytearray(data), dtype=torch.uint8).reshape(-1, 3)
    padded = torch.nn.functional.pad(parts, (1, 0)).contiguous()
    return padded.view(torch.int32).flatten().double() / 2**31


def _floats(dtype: torch.dtype):
    return lambda data: torch.frombuffer(bytearray(data), dtype=dtype)


_DECODERS = {
    (PCM, 8): _integers(torch.uint8, 128, 128),
    (PCM, 16): _integers(torch.int16, 0, 2**15),
    (PCM, 24): _three_bytes,
    (PCM, 32): _integers(torch.int32, 0, 2**31),
    (FLOAT, 32): _floats(torch.float32),
    (FLOAT, 64): _floats(torch.float64),
}
