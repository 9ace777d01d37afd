"""Settings of `recurra compare`."""

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from recurra.problem.settings import ProblemSettings


class CompareSettings(ProblemSettings):
    """Arguments of `infer_problem` and of `compare`; None means: the default of `compare`."""

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

    def compare_arguments(self) -> dict[str, Any]:
        """Arguments of `compare`."""
        return self.other_arguments() | ({"settings": self.options} if self.options else {})
