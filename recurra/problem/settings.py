"""Settings from a TOML file and from command-line flags, checked by one pydantic model; flags win."""

import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from recurra.errors import InputError, UnknownNameError


class SettingsError(InputError):
    """A setting has an invalid value; the message names the file or the flag."""


class ProblemSettings(BaseModel):
    """Arguments of `infer_problem` and options of the estimator; None means: not set."""

    model_config = ConfigDict(extra="forbid")

    task: str | None = None
    target: str | list[str] | None = None
    id: str | list[str] | None = None
    time: str | list[str] | None = None
    inputs: str | list[str] | None = None
    observed: str | list[str] | None = None
    static: str | list[str] | None = None
    ignore: str | list[str] | None = None
    horizon: PositiveInt | None = None
    season: PositiveInt | None = None
    test: float | str | None = None
    missing: Literal["error", "drop", "fill"] | None = None
    fill: Literal["none", "forward", "interpolate"] | None = None
    sort: bool | None = None
    dates: Literal["day-first", "month-first"] | None = None
    decimal: Literal["point", "comma"] | None = None
    sheet: str | None = None
    encoding: str | None = None
    na: str | list[str] | None = None
    seed: int | None = Field(default=None, ge=0, lt=2**32)  # of the train/test split
    options: dict[str, Any] = Field(default_factory=dict)

    def problem_arguments(self) -> dict[str, Any]:
        """Arguments of `infer_problem`."""
        return {name: value for name, value in self._set_values().items() if name in ProblemSettings.model_fields}

    def other_arguments(self) -> dict[str, Any]:
        """What was set besides the arguments of `infer_problem`."""
        return {name: value for name, value in self._set_values().items() if name not in ProblemSettings.model_fields}

    def _set_values(self) -> dict[str, Any]:
        names = [name for name in type(self).model_fields if name != "options"]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


Settings = TypeVar("Settings", bound=ProblemSettings)


def load_settings(kind: type[Settings], file: Path | None, flags: dict[str, Any]) -> Settings:
    """The settings of a file, overridden by the flags that were given."""
    written = {} if file is None else _read(kind, file)
    given = {name: value for name, value in flags.items() if value is not None}
    options = {**written.get("options", {}), **given.get("options", {})}
    try:
        return kind.model_validate({**written, **given, "options": options})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        place = f"--{name.replace('_', '-')}" if name in given else f"{file}, {name}"
        raise SettingsError(place, repr(first["input"]), _as_expectation(first["msg"])) from error


def _read(kind: type[ProblemSettings], file: Path) -> dict[str, Any]:
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(file), f"invalid TOML ({error})", "a settings file in TOML") from error
    except UnicodeDecodeError as error:
        raise SettingsError(str(file), str(error), "text in UTF-8") from error
    for name in written:
        if name not in kind.model_fields:
            raise UnknownNameError(f"{file}, setting", repr(name), kind.model_fields)
    if not isinstance(written.get("options", {}), dict):
        raise SettingsError(f"{file}, options", repr(written["options"]), "a table, [options]")
    return written


def _as_expectation(message: str) -> str:
    """pydantic's message as an "expected …" clause."""
    text = message.removeprefix("Input should be ").removeprefix("Value error, ")
    text = text[:1].lower() + text[1:]
    return f"a number {text}" if text.startswith(("greater", "less")) else text
