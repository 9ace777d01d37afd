"""The canonical tasks: seeded, in batches, each with the score of its trivial answer.

task = tasks.adding(length=200)          # or tasks.make("adding", length=200); tasks.names() lists them
for batch in task.batches(32, count=100, seed=0).epoch(0): ...
task.score(outputs, batch), task.baseline
"""

from recurra.data.tasks.base import CanonicalTask, TaskBatches, make, names, register
from recurra.data.tasks.counting import AnBn as anbn
from recurra.data.tasks.counting import AnBnCn as anbncn
from recurra.data.tasks.counting import SpikeDistance as spike_distance
from recurra.data.tasks.grammars import ContinualReber as continual_reber
from recurra.data.tasks.grammars import EmbeddedReber as embedded_reber
from recurra.data.tasks.grammars import Reber as reber
from recurra.data.tasks.mnist import SequentialMNIST as sequential_mnist
from recurra.data.tasks.remembering import Adding as adding
from recurra.data.tasks.remembering import CopyMemory as copy_memory
from recurra.data.tasks.remembering import Latch as latch
from recurra.data.tasks.remembering import Parity as parity
from recurra.data.tasks.remembering import SerialRecall as serial_recall
from recurra.data.tasks.remembering import TemporalOrder as temporal_order
from recurra.data.tasks.signals import MackeyGlass as mackey_glass
from recurra.data.tasks.signals import MemoryCapacity as memory_capacity
from recurra.data.tasks.signals import MultiTimescale as multi_timescale
from recurra.data.tasks.signals import Narma10 as narma10
from recurra.data.tasks.signals import Sines as sines

__all__ = [
    "CanonicalTask",
    "TaskBatches",
    "adding",
    "anbn",
    "anbncn",
    "continual_reber",
    "copy_memory",
    "embedded_reber",
    "latch",
    "mackey_glass",
    "make",
    "memory_capacity",
    "multi_timescale",
    "names",
    "narma10",
    "parity",
    "reber",
    "register",
    "sequential_mnist",
    "serial_recall",
    "sines",
    "spike_distance",
    "temporal_order",
]
