"""Settings from a TOML file and from flags; flags win. Both are checked by one pydantic model."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from recurra.errors import InputError, UnknownNameError

#: settings that `recurra.questions.ask` takes
ASKING = ("task", "target", "id", "time", "inputs", "horizon", "season", "test", "missing", "sort", "seed")
#: settings an estimator takes, where its kind has them
FITTING = ("hidden_size", "num_layers", "bidirectional", "dropout", "epochs", "batch_size", "lr", "device")


class SettingsError(InputError):
    """A setting has a value it cannot have; the message names the file or the flag."""


class Settings(BaseModel):
    """All that can be set for `recurra fit`; what is None is found out or left to the estimator."""

    model_config = ConfigDict(extra="forbid")

    task: str | None = None
    target: str | None = None
    id: str | None = None
    time: str | None = None
    inputs: str | list[str] | None = None
    horizon: PositiveInt | None = None
    season: PositiveInt | None = None
    test: float | str | None = None
    missing: Literal["error", "drop", "fill"] | None = None
    sort: bool | None = None
    seed: int = Field(default=0, ge=0, lt=2**32)
    cell: str = "lstm"
    hidden_size: PositiveInt | list[PositiveInt] | None = None
    num_layers: PositiveInt | None = None
    bidirectional: bool | None = None
    dropout: float | None = Field(default=None, ge=0, le=1)
    epochs: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    lr: float | None = Field(default=None, gt=0)
    device: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)  # further ones of the estimator
    out: str | None = None

    def asking(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ASKING if getattr(self, name) is not None}

    def fitting(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in FITTING if getattr(self, name) is not None}
        return given | self.options


def settings_of(file: Path | None, flags: dict[str, Any]) -> Settings:
    """The settings of a file, and over them the flags that were given."""
    written = {} if file is None else _read(file)
    given = {name: value for name, value in flags.items() if value is not None}
    options = {**written.get("options", {}), **given.get("options", {})}
    try:
        return Settings.model_validate({**written, **given, **({"options": options} if options else {})})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        place = f"--{name.replace('_', '-')}" if name in given else f"{file}, {name}"
        raise SettingsError(place, repr(problem["input"]), _plain(problem["msg"])) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(file), str(error), "TOML") from error
    except UnicodeDecodeError as error:
        raise SettingsError(str(file), str(error), "text in UTF-8") from error
    for name in written:
        if name not in Settings.model_fields:
            raise UnknownNameError(f"{file}, setting", repr(name), Settings.model_fields)
    if not isinstance(written.get("options", {}), dict):
        raise SettingsError(f"{file}, options", repr(written["options"]), "a table, [options]")
    return written


def _plain(message: str) -> str:
    """pydantic's sentence as the end of ours."""
    text = message.removeprefix("Input should be ").removeprefix("Value error, ")
    return text[:1].lower() + text[1:]


def assignments(pairs: list[str]) -> dict[str, Any]:
    """`--set clip=0.5 --set pool=last` as options, read as TOML reads values, else as text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name.strip():
            raise SettingsError("--set", repr(pair), "name=value")
        try:
            found[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = text.strip()
    return found
