"""What can be set about a comparison."""

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from recurra.problem.settings import Asking


class Comparison(Asking):
    """What is None is as `compare` has it."""

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

    def comparing(self) -> dict[str, Any]:
        """Arguments of `compare`."""
        return self.more() | ({"settings": self.options} if self.options else {})
