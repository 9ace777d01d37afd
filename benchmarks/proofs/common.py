"""What the experiments share: a clock, a rate that falls, and what a result is."""

import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results"
Row = dict[str, Any]


class Clock:
    """How long an experiment may take, and how long it took: processor time of one core, whatever else runs."""

    def __init__(self, minutes: float):
        self.start, self.limit = time.process_time(), 60 * minutes

    @property
    def seconds(self) -> float:
        return time.process_time() - self.start

    @property
    def over(self) -> bool:
        return self.seconds > self.limit


def set_rate(learner: Any, rate: float) -> None:
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
