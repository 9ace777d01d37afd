"""Settings of `recurra fit`, and the parser of --set NAME=VALUE."""

import tomllib
from pathlib import Path
from typing import Any

import typer
from pydantic import Field, PositiveInt

from recurra.problem.settings import ProblemSettings, SettingsError


class FitSettings(ProblemSettings):
    """Arguments of `infer_problem` and options of the estimator; None means: the estimator's default."""

    seed: int | None = Field(default=0, ge=0, lt=2**32)
    cell: str = "lstm"
    hidden_size: PositiveInt | list[PositiveInt] | None = None
    num_layers: PositiveInt | None = None
    bidirectional: bool | None = None
    dropout: float | None = Field(default=None, ge=0, le=1)
    embeddings: str | None = None
    epochs: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    lr: float | None = Field(default=None, gt=0)
    device: str | None = None
    out: str | None = None

    def estimator_arguments(self) -> dict[str, Any]:
        """Options of the estimator that were set, besides its cell."""
        others = self.other_arguments().items()
        return {name: value for name, value in others if name not in ("cell", "out")} | self.options


def given_flags(context: typer.Context, kind: type[ProblemSettings]) -> dict[str, Any]:
    """The command's options that are fields of `kind`, and `--set` as `options`."""
    flags = {name: value for name, value in context.params.items() if name in kind.model_fields}
    for name in ("id", "na"):  # may be given again and again
        flags[name] = ",".join(flags.get(name) or ()) or None
    flags = {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
    return flags | {"options": parse_assignments(list(context.params.get("option") or ())) or None}


def parse_assignments(pairs: list[str]) -> dict[str, Any]:
    """`["clip=0.5", "pool=last"]` as a dict; values are parsed as TOML, else taken as text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name.strip():
            raise SettingsError("--set", repr(pair), "NAME=VALUE")
        try:
            found[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = text.strip()
    return found
