"""Benchmark tasks of the literature: generated from a seed, in batches, with a score and a trivial baseline.

task = tasks.adding(length=200)          # or tasks.make("adding", length=200); tasks.names() lists them
for batch in task.batches(32, count=100, seed=0).epoch(0): ...
task.score(outputs, batch), task.baseline
"""

from .base import CanonicalTask, TaskBatches, make, names, register
from .cognition import ContextDecision as context_decision
from .cognition import DelayedMatch as delayed_match
from .cognition import FlipFlop as flip_flop
from .cognition import ParametricWorkingMemory as parametric_working_memory
from .cognition import PerceptualDecision as perceptual_decision
from .cognition import ReadySetGo as ready_set_go
from .cognitive_battery import CognitiveBattery as cognitive_battery
from .counting import AnBn as anbn
from .counting import AnBnCn as anbncn
from .counting import SpikeDistance as spike_distance
from .grammars import ContinualReber as continual_reber
from .grammars import EmbeddedReber as embedded_reber
from .grammars import Reber as reber
from .mnist import SequentialMNIST as sequential_mnist
from .recall import Adding as adding
from .recall import CopyMemory as copy_memory
from .recall import Latch as latch
from .recall import Parity as parity
from .recall import SerialRecall as serial_recall
from .recall import TemporalOrder as temporal_order
from .signals import MackeyGlass as mackey_glass
from .signals import MemoryCapacity as memory_capacity
from .signals import MultiTimescale as multi_timescale
from .signals import Narma10 as narma10
from .signals import Sines as sines

__all__ = [
    "CanonicalTask",
    "TaskBatches",
    "adding",
    "anbn",
    "anbncn",
    "cognitive_battery",
    "context_decision",
    "continual_reber",
    "copy_memory",
    "delayed_match",
    "embedded_reber",
    "flip_flop",
    "latch",
    "mackey_glass",
    "make",
    "memory_capacity",
    "multi_timescale",
    "names",
    "narma10",
    "parametric_working_memory",
    "parity",
    "perceptual_decision",
    "ready_set_go",
    "reber",
    "register",
    "sequential_mnist",
    "serial_recall",
    "sines",
    "spike_distance",
    "temporal_order",
]
