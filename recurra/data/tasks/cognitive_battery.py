"""The battery of cognitive tasks of Yang et al. 2019: one network, many rules, told by a cue."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError, UnknownNameError
from ..sequences import Batch
from .base import CanonicalTask, check_sizes, integers, one_hot, register, uniform, unpadded_batch

#: Each rule: what is answered ("pro": the direction shown, "anti": the opposite one, "decide": that of the stronger of
#: two, "match", "nonmatch": that of the second if the two are equal, or differ), when, and how much each ring counts.
RULES: dict[str, tuple[str, str, tuple[float, float]]] = {
    "go": ("pro", "cued", (1, 0)),
    "rt_go": ("pro", "at once", (1, 0)),
    "delay_go": ("pro", "delayed", (1, 0)),
    "anti": ("anti", "cued", (1, 0)),
    "rt_anti": ("anti", "at once", (1, 0)),
    "delay_anti": ("anti", "delayed", (1, 0)),
    "dm1": ("decide", "cued", (1, 0)),
    "dm2": ("decide", "cued", (0, 1)),
    "context_dm1": ("decide", "cued", (1, 0)),
    "context_dm2": ("decide", "cued", (0, 1)),
    "multisensory_dm": ("decide", "cued", (0.5, 0.5)),
    "dms": ("match", "delayed", (1, 0)),
    "dnms": ("nonmatch", "delayed", (1, 0)),
}
WINDOW = math.pi / 5  # how far a correct answer may be from the direction


@register("cognitive_battery")
@dataclass(frozen=True)
class CognitiveBattery(CanonicalTask):
    """Thirteen of the twenty cognitive tasks of Yang, Joglekar, Song, Newsome & Wang (2019), mixed in every batch.

    Inputs: a fixation cue, two rings of units tuned to directions (two modalities), and one cue per rule. Targets: 0.85
    on the fixation output before the answer and 0.05 after, and a bump on a ring of outputs at the direction of the
    answer. A trial has four periods: fixation, a stimulus, more of it or a delay, the answer.

    - `go`, `anti`: answer the direction shown, or the opposite one, when the fixation cue goes; `delay_…`: after the
      stimulus has gone; `rt_…`: as soon as it comes, although fixation stays.
    - `dm1`, `dm2`: the direction of the stronger of two stimuli on ring 1 or 2. `context_dm1`, `context_dm2`: both
      rings show two, one ring counts. `multisensory_dm`: both rings show the same two; their strengths add up.
    - `dms`, `dnms`: two stimuli, a delay apart. The second is answered if it equals the first, or if it does not.

    **Arguments**

    - `rules`: those that trials draw from. `period`: steps of a period; the first is up to half as long again.
    - `ring`: units of a ring. `noise`: the standard deviation of the inputs' noise.

    `score` is the share of correct trials: at the last step fixation is broken, or kept, as it should be, and the
    direction (the population vector of the ring) is within 36° of the right one.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.cognitive_battery(rules=("go", "dms"), ring=8)
        >>> batch = next(task.batches(4).epoch(0))
        >>> batch.inputs.shape, batch.targets.shape  # (T, B, 1 + 2 rings + rules), (T, B, 1 + ring)
        (torch.Size([45, 4, 19]), torch.Size([45, 4, 9]))
    """

    rules: tuple[str, ...] = tuple(RULES)
    period: int = 10
    ring: int = 16
    noise: float = 0.05

    kind, metric, better = "transduction", "accuracy", "higher"

    def __post_init__(self):
        check_sizes(period=self.period, ring=self.ring)
        if not isinstance(self.rules, (list, tuple)):
            raise InputError("rules", repr(self.rules), "a tuple of names of rules")
        for rule in self.rules:
            if rule not in RULES:
                raise UnknownNameError("rules", rule, RULES)
        if not self.rules or self.noise < 0:
            raise InputError("rules", self.rules, "at least one rule, and noise of at least 0")

    @property
    def input_size(self) -> int:
        return 1 + 2 * self.ring + len(self.rules)

    @property
    def output_size(self) -> int:
        return 1 + self.ring

    @property
    def length(self) -> int:
        return 4 * self.period + self.period // 2

    @property
    def baseline(self) -> float:
        """Of keeping fixation, which is right in half of the trials of the matching rules."""
        return sum(0.5 for rule in self.rules if "match" in RULES[rule][0]) / len(self.rules)

    def draw(self, count: int, random: torch.Generator) -> Batch:
        trials = [self._trials(rule, count, random) for rule in self.rules]
        chosen = integers(0, len(self.rules) - 1, count, random)
        inputs, targets = (torch.stack(parts)[chosen, :, torch.arange(count)] for parts in zip(*trials, strict=True))
        inputs = inputs + self.noise * torch.randn(inputs.shape, generator=random, dtype=torch.float64)
        cues = one_hot(chosen, len(self.rules)).double()[:, None].expand(-1, self.length, -1)
        return unpadded_batch(torch.cat([inputs, cues], -1).transpose(0, 1), targets.transpose(0, 1))

    def _trials(self, rule: str, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
        """Inputs without noise and cues (T, B, 1 + 2 rings), and targets (T, B, 1 + ring), of trials of one rule."""
        answer, when, counts = RULES[rule]
        steps = torch.arange(self.length)[:, None]
        first = self.period + integers(0, self.period // 2, count, random)  # the start of the first stimulus
        second, go = first + self.period, first + 2 * self.period
        directions = self._directions(answer, count, random)
        is_first = (steps >= first) & ((steps < second) | (when != "delayed"))
        is_second = steps >= go if "match" in answer else is_first
        strengths = self._strengths(rule, count, random)  # (2 rings, 2 stimuli, B)
        rings = [
            is_first[..., None] * strengths[m, 0][:, None] * self._bump(directions[0])
            + is_second[..., None] * strengths[m, 1][:, None] * self._bump(directions[1])
            for m in range(2)
        ]
        right = self._right(answer, directions, torch.einsum("m,msb->sb", torch.tensor(counts).double(), strengths))
        moves = ~right.isnan()
        answers = (steps >= (first if when == "at once" else go)) & moves
        fixation = torch.where((steps >= go) & (when != "at once"), 0.0, 1.0).double()
        held = torch.where(answers, 0.05, 0.85).double()
        ring = 0.05 + answers[..., None] * self._bump(right.nan_to_num())
        return torch.cat([fixation[..., None], *rings], -1), torch.cat([held[..., None], ring], -1)

    def _directions(self, answer: str, count: int, random: torch.Generator) -> Tensor:
        """(2, B): of the first and of the second stimulus, a quarter to three quarters of a turn apart unless equal."""
        first = uniform((count,), random, 0, 2 * math.pi)
        other = first + uniform((count,), random, math.pi / 2, 3 * math.pi / 2)
        equal = torch.randint(0, 2, (count,), generator=random).bool() & ("match" in answer)
        return torch.stack([first, torch.where(equal, first, other) % (2 * math.pi)])

    def _strengths(self, rule: str, count: int, random: torch.Generator) -> Tensor:
        """(2 rings, 2 stimuli, B)."""
        answer = RULES[rule][0]
        found = torch.zeros(2, 2, count, dtype=torch.float64)
        if answer in ("pro", "anti"):
            found[integers(0, 1, count, random), 0, torch.arange(count)] = 1.0  # on either ring
            return found
        if answer != "decide":
            modality = integers(0, 1, count, random)
            found[modality, :, torch.arange(count)] = 1.0
            return found
        shown = [True, True] if rule.startswith(("context", "multi")) else [rule == "dm1", rule == "dm2"]
        for m in range(2):
            mean = uniform((count,), random, 0.8, 1.2)
            sign = 2.0 * integers(0, 1, count, random) - 1
            gap = sign * (0.08 + 0.24 * uniform((count,), random))
            if m and rule == "multisensory_dm":
                gap = gap.abs() * (found[0, 0] - found[0, 1]).sign()
            found[m] = shown[m] * torch.stack([mean + gap / 2, mean - gap / 2])
        return found

    @staticmethod
    def _right(answer: str, directions: Tensor, strengths: Tensor) -> Tensor:
        """(B,): the direction of the right answer; NaN where fixation is to be kept."""
        first, second = directions
        nothing = torch.full_like(first, math.nan)
        if answer == "decide":
            return torch.where(strengths[0] > strengths[1], first, second)
        if answer == "match":
            return torch.where(first == second, second, nothing)
        if answer == "nonmatch":
            return torch.where(first == second, nothing, second)
        return first if answer == "pro" else (first + math.pi) % (2 * math.pi)

    def _bump(self, direction: Tensor) -> Tensor:
        """(B, ring): the activity of units tuned to directions around the ring."""
        away = (direction[:, None] - self._preferred() + math.pi) % (2 * math.pi) - math.pi
        return 0.8 * torch.exp(-0.5 * (8 * away / math.pi).square())

    def _preferred(self) -> Tensor:
        return 2 * math.pi * torch.arange(self.ring, dtype=torch.float64) / self.ring

    def _read(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """(B,): whether fixation is kept at the last step, and the direction."""
        last = outputs[-1].double()
        rise = (last[:, 1:] - 0.05).clamp_min(0)
        preferred = self._preferred().to(last.device)
        return last[:, 0] > 0.5, torch.atan2(rise @ preferred.sin(), rise @ preferred.cos())

    def trivial(self, batch: Batch) -> Tensor:
        kept = torch.full_like(batch.targets, 0.05)
        kept[..., 0] = 0.85
        return kept

    def score(self, outputs: Tensor, batch: Batch) -> float:
        (held, direction), (wanted, right) = self._read(outputs), self._read(batch.targets)
        away = (direction - right + math.pi) % (2 * math.pi) - math.pi
        correct = torch.where(wanted, held, ~held & (away.abs() < WINDOW))
        return float(correct.double().mean())
