"""Settings from a TOML file and from flags; flags win. One pydantic model checks both."""

import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from recurra.errors import InputError, UnknownNameError


class SettingsError(InputError):
    """A setting has a value it cannot have; the message names the file or the flag."""


class Asking(BaseModel):
    """What can be set about what a file asks, and options of the estimator; what is None is found out."""

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
    seed: int | None = Field(default=None, ge=0, lt=2**32)  # of what is held out
    options: dict[str, Any] = Field(default_factory=dict)

    def asking(self) -> dict[str, Any]:
        """Arguments of `ask`."""
        return {name: value for name, value in self.given().items() if name in Asking.model_fields}

    def more(self) -> dict[str, Any]:
        """What else was set."""
        return {name: value for name, value in self.given().items() if name not in Asking.model_fields}

    def given(self) -> dict[str, Any]:
        names = [name for name in type(self).model_fields if name != "options"]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


Settings = TypeVar("Settings", bound=Asking)


def settings_of(kind: type[Settings], file: Path | None, flags: dict[str, Any]) -> Settings:
    """The settings of a file, and over them the flags that were given."""
    written = {} if file is None else _read(kind, file)
    given = {name: value for name, value in flags.items() if value is not None}
    options = {**written.get("options", {}), **given.get("options", {})}
    try:
        return kind.model_validate({**written, **given, "options": options})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        place = f"--{name.replace('_', '-')}" if name in given else f"{file}, {name}"
        raise SettingsError(place, repr(problem["input"]), _plain(problem["msg"])) from error


def _read(kind: type[Asking], file: Path) -> dict[str, Any]:
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(file), str(error), "TOML") from error
    except UnicodeDecodeError as error:
        raise SettingsError(str(file), str(error), "text in UTF-8") from error
    for name in written:
        if name not in kind.model_fields:
            raise UnknownNameError(f"{file}, setting", repr(name), kind.model_fields)
    if not isinstance(written.get("options", {}), dict):
        raise SettingsError(f"{file}, options", repr(written["options"]), "a table, [options]")
    return written


def _plain(message: str) -> str:
    """pydantic's sentence as the end of ours."""
    text = message.removeprefix("Input should be ").removeprefix("Value error, ")
    return text[:1].lower() + text[1:]
