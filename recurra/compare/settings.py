"""The settings of a comparison from a TOML file and from flags; flags win. One pydantic model checks both."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from recurra.errors import InputError, UnknownNameError

ASKING = ("task", "target", "id", "time", "inputs", "horizon", "season", "test", "missing", "sort", "seed")


class Comparison(BaseModel):
    """What can be set; what is None is found out, or as `compare` has it."""

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
    cells: str | list[str] | None = None
    budget: Literal["parameters", "time"] | None = None
    hidden_size: PositiveInt | None = None
    seeds: PositiveInt | None = None
    epochs: PositiveInt | None = None
    seconds: PositiveFloat | None = None
    tune: int | None = Field(default=None, ge=0)
    jobs: PositiveInt | None = None
    folder: str | None = None
    storage: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict, alias="options")  # further ones of the estimators

    def asking(self) -> dict[str, Any]:
        """Arguments of `recurra.questions.ask`."""
        return {name: value for name, value in self._given().items() if name in ASKING}

    def comparing(self) -> dict[str, Any]:
        """Arguments of `compare`."""
        return {name: value for name, value in self._given().items() if name not in ASKING}

    def _given(self) -> dict[str, Any]:
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) not in (None, {})}


def comparison(file: Path | None, flags: dict[str, Any]) -> Comparison:
    """The settings of a file, and over them the flags that were given."""
    written = {} if file is None else _read(file)
    given = {name: value for name, value in flags.items() if value is not None}
    options = {**written.get("options", {}), **given.get("options", {})}
    try:
        return Comparison.model_validate({**written, **given, "options": options})
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        place = f"--{name.replace('_', '-')}" if name in given else f"{file}, {name}"
        text = problem["msg"].removeprefix("Input should be ")
        raise InputError(place, repr(problem["input"]), text[:1].lower() + text[1:]) from error


def _read(file: Path) -> dict[str, Any]:
    try:
        written = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(file), str(error), "TOML, in UTF-8") from error
    known = ["options" if name == "settings" else name for name in Comparison.model_fields]
    for name in written:
        if name not in known:
            raise UnknownNameError(f"{file}, setting", repr(name), known)
    if not isinstance(written.get("options", {}), dict):
        raise InputError(f"{file}, options", repr(written["options"]), "a table, [options]")
    return written
