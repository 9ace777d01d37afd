"""Tasks of systems neuroscience: memories of pulses, decisions on noisy evidence, delayed comparison, timing."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import InputError
from ..sequences import Batch
from . import scores
from .base import CanonicalTask, check_sizes, integers, one_hot, register, uniform, unpadded_batch


@register("flip_flop")
@dataclass(frozen=True)
class FlipFlop(CanonicalTask):
    """Flip-flops: each output holds the sign of the last pulse of its input (Sussillo & Barak 2013).

    A trained network has 2ᵇⁱᵗˢ stable fixed points, one per memory; `rc.dynamics.slow_points` finds them.

    **Arguments**

    - `length`: steps of a sequence. `bits`: how many inputs and outputs. `rate`: the probability of a pulse.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.flip_flop(length=50)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 3])
    """

    length: int = 100
    bits: int = 3
    rate: float = 0.1

    kind, metric, better = "transduction", "mse", "lower"
    baseline = 1.0

    def __post_init__(self):
        check_sizes(length=self.length, bits=self.bits)
        if not 0 < self.rate <= 1:
            raise InputError("rate", self.rate, "a probability in (0, 1]")

    @property
    def input_size(self) -> int:
        return self.bits

    @property
    def output_size(self) -> int:
        return self.bits

    def draw(self, count: int, random: torch.Generator) -> Batch:
        shape = (self.length, count, self.bits)
        pulses = (uniform(shape, random) < self.rate) * (2.0 * (uniform(shape, random) < 0.5) - 1)
        pulses[0] = 2.0 * (uniform(shape[1:], random) < 0.5) - 1  # every memory is set at first
        held = [pulses[0]]
        for pulse in pulses[1:]:
            held.append(torch.where(pulse == 0, held[-1], pulse))
        return unpadded_batch(pulses.double(), torch.stack(held).double())

    def trivial(self, batch: Batch) -> Tensor:
        return torch.zeros_like(batch.targets)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.mse(outputs, batch.targets, batch.mask)


class Decision(CanonicalTask):
    """Base of decisions between two choices at the end of a trial."""

    kind, metric, better = "classification", "accuracy", "higher"
    output_size, baseline = 2, 1 / 2

    def trivial(self, batch: Batch) -> Tensor:
        return one_hot(torch.zeros_like(batch.targets), self.output_size)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.accuracy(outputs, batch.targets)


@register("perceptual_decision")
@dataclass(frozen=True)
class PerceptualDecision(Decision):
    """Perceptual decision: is a noisy stream positive or negative on average (random dots; Britten et al. 1992)?

    **Arguments**

    - `length`: steps of a trial. `noise`: its standard deviation.
    - `coherences`: the sizes of the mean that trials draw from.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.perceptual_decision(length=20)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([20, 4, 1])
    """

    length: int = 50
    noise: float = 1.0
    coherences: tuple[float, ...] = (0.1, 0.2, 0.4)

    input_size = 1

    def __post_init__(self):
        check_sizes(length=self.length)
        if self.noise < 0 or not self.coherences or min(self.coherences) <= 0:
            raise InputError("coherences", self.coherences, "positive numbers, and noise of at least 0")

    def draw(self, count: int, random: torch.Generator) -> Batch:
        labels = torch.randint(0, 2, (count,), generator=random)
        sizes = torch.tensor(self.coherences, dtype=torch.float64)[integers(0, len(self.coherences) - 1, count, random)]
        noise = self.noise * torch.randn(self.length, count, generator=random, dtype=torch.float64)
        return unpadded_batch(((2.0 * labels - 1) * sizes + noise)[..., None], labels)


@register("context_decision")
@dataclass(frozen=True)
class ContextDecision(Decision):
    """Context-dependent decision: two noisy streams, and a cue that says which one counts (Mante et al. 2013).

    Inputs: stream 1, stream 2, the cues of contexts 1 and 2, of which one is on in all steps.

    **Arguments**

    - `length`: steps of a trial. `noise`: the standard deviation. `coherence`: the mean of a stream, of either sign.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.context_decision(length=20)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([20, 4, 4])
    """

    length: int = 50
    noise: float = 1.0
    coherence: float = 0.3

    input_size = 4

    def __post_init__(self):
        check_sizes(length=self.length)
        if self.noise < 0 or not self.coherence > 0:
            raise InputError("coherence", self.coherence, "a positive number, and noise of at least 0")

    def draw(self, count: int, random: torch.Generator) -> Batch:
        signs = torch.randint(0, 2, (count, 2), generator=random)
        context = torch.randint(0, 2, (count,), generator=random)
        noise = self.noise * torch.randn(self.length, count, 2, generator=random, dtype=torch.float64)
        streams = self.coherence * (2.0 * signs - 1) + noise
        cues = one_hot(context, 2).double().expand(self.length, count, 2)
        return unpadded_batch(torch.cat([streams, cues], dim=-1), signs.gather(1, context[:, None])[:, 0])


@register("delayed_match")
@dataclass(frozen=True)
class DelayedMatch(Decision):
    """Delayed match to sample: are the stimuli before and after a delay the same?

    Inputs: one per stimulus, on while it is shown. Class 1 is a match.

    **Arguments**

    - `stimuli`: how many there are. `shown`: steps of a stimulus. `delay`: steps between the two.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.delayed_match()
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([30, 4, 4])
    """

    stimuli: int = 4
    shown: int = 5
    delay: int = 20

    def __post_init__(self):
        check_sizes(stimuli=self.stimuli, shown=self.shown, delay=self.delay)
        if self.stimuli < 2:
            raise InputError("stimuli", self.stimuli, "at least 2")

    @property
    def input_size(self) -> int:
        return self.stimuli

    def draw(self, count: int, random: torch.Generator) -> Batch:
        first = torch.randint(0, self.stimuli, (count,), generator=random)
        match = torch.randint(0, 2, (count,), generator=random)
        other = (first + integers(1, self.stimuli - 1, count, random)) % self.stimuli
        second = torch.where(match == 1, first, other)
        inputs = torch.zeros(2 * self.shown + self.delay, count, self.stimuli, dtype=torch.float64)
        inputs[: self.shown] = one_hot(first, self.stimuli).double()
        inputs[-self.shown :] = one_hot(second, self.stimuli).double()
        return unpadded_batch(inputs, match)


@register("parametric_working_memory")
@dataclass(frozen=True)
class ParametricWorkingMemory(Decision):
    """Parametric working memory: which of two numbers, a delay apart, is larger (Romo et al. 1999)? Class 1: the first.

    **Arguments**

    - `shown`: steps of a number. `delay`: steps between the two.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.parametric_working_memory()
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([30, 4, 1])
    """

    shown: int = 5
    delay: int = 20

    input_size = 1

    def __post_init__(self):
        check_sizes(shown=self.shown, delay=self.delay)

    def draw(self, count: int, random: torch.Generator) -> Batch:
        numbers = uniform((2, count), random)
        inputs = torch.zeros(2 * self.shown + self.delay, count, 1, dtype=torch.float64)
        inputs[: self.shown, :, 0], inputs[-self.shown :, :, 0] = numbers[0], numbers[1]
        return unpadded_batch(inputs, (numbers[0] > numbers[1]).long())


@register("ready_set_go")
@dataclass(frozen=True)
class ReadySetGo(CanonicalTask):
    """Ready, set, go: two pulses are an interval apart; the output must rise after the same interval (Jazayeri 2010).

    Inputs: the ready and the set pulse. Target: 1 from the time of "go" on, 0 before.

    **Arguments**

    - `shortest`, `longest`: the interval, in steps.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.ready_set_go()
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([50, 4, 2])
    """

    shortest: int = 10
    longest: int = 20

    kind, metric, better = "transduction", "mse", "lower"
    input_size, output_size = 2, 1

    def __post_init__(self):
        check_sizes(shortest=self.shortest, longest=self.longest)
        if self.longest < self.shortest:
            raise InputError("longest", self.longest, f"at least shortest = {self.shortest}")

    @property
    def length(self) -> int:
        """Steps of a sequence: ready at the fifth step, and five steps after the latest go."""
        return 2 * self.longest + 10

    @property
    def baseline(self) -> float:
        """The variance of the target, whose mean is the trivial answer."""
        share = self._share()
        return share * (1 - share)

    def _share(self) -> float:
        """The expected share of steps after go."""
        return (self.length - 4 - (self.shortest + self.longest)) / self.length

    def draw(self, count: int, random: torch.Generator) -> Batch:
        interval = integers(self.shortest, self.longest, count, random)
        steps = torch.arange(self.length)[:, None]
        inputs = torch.stack([(steps == 4).expand(-1, count), steps == 4 + interval], dim=-1)
        return unpadded_batch(inputs.double(), (steps >= 4 + 2 * interval).double()[..., None])

    def trivial(self, batch: Batch) -> Tensor:
        return torch.full_like(batch.targets, self._share())

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.mse(outputs, batch.targets, batch.mask)
