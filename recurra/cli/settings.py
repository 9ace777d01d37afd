"""What can be set about `recurra fit`, and options given as name=value."""

import tomllib
from pathlib import Path
from typing import Any

import typer
from pydantic import Field, PositiveInt

from recurra.problem.settings import Asking, SettingsError


class FitSettings(Asking):
    """What is None is left to the estimator."""

    seed: int | None = Field(default=0, ge=0, lt=2**32)
    cell: str = "lstm"
    hidden_size: PositiveInt | list[PositiveInt] | None = None
    num_layers: PositiveInt | None = None
    bidirectional: bool | None = None
    dropout: float | None = Field(default=None, ge=0, le=1)
    epochs: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    lr: float | None = Field(default=None, gt=0)
    device: str | None = None
    out: str | None = None

    def fitting(self) -> dict[str, Any]:
        """Settings an estimator takes, where its kind has them."""
        return {name: value for name, value in self.more().items() if name not in ("cell", "out")} | self.options


def flags_of(context: typer.Context, kind: type[Asking]) -> dict[str, Any]:
    """The flags of a command that are settings by their names, and its `--set`."""
    flags = {name: value for name, value in context.params.items() if name in kind.model_fields}
    flags = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    return flags | {"options": assignments(list(context.params.get("option") or ())) or None}


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
