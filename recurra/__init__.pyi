"""The public names of recurra. Written by scripts/write_stubs.py; do not edit."""

from types import ModuleType

from . import cells as cells
from . import data as data
from . import dynamics as dynamics
from . import errors as errors
from . import estimators as estimators
from . import init as init
from . import inspect as inspect
from . import models as models
from . import problem as problem
from . import reservoir as reservoir
from . import train as train
from .cell import Cell as Cell
from .cells import register as register
from .cells import registry as registry
from .compare import cell_families as _cell_families
from .compare import compare as _compare
from .compare import resolve_cells as _resolve_cells
from .dynamics import DynamicalSystem as DynamicalSystem
from .engine.backend import EngineWarning as EngineWarning
from .engine.backend import set_backend as set_backend
from .engine.caches import clear_caches as clear_caches
from .engine.explain import explain as explain
from .errors import ConversionError as ConversionError
from .errors import DeviceError as DeviceError
from .errors import DtypeError as DtypeError
from .errors import InputError as InputError
from .errors import LengthsError as LengthsError
from .errors import MissingPackageError as MissingPackageError
from .errors import ModelFileError as ModelFileError
from .errors import OptionError as OptionError
from .errors import RecurraError as RecurraError
from .errors import ShapeError as ShapeError
from .errors import TraceError as TraceError
from .errors import UnknownNameError as UnknownNameError
from .errors import WeightsMismatchError as WeightsMismatchError
from .estimators import Forecaster as Forecaster
from .estimators import LanguageModelEstimator as LanguageModelEstimator
from .estimators import OnlineClassifier as OnlineClassifier
from .estimators import OnlineForecaster as OnlineForecaster
from .estimators import SequenceClassifier as SequenceClassifier
from .estimators import SequenceRegressor as SequenceRegressor
from .estimators import SequenceTagger as SequenceTagger
from .estimators import SequenceToSequence as SequenceToSequence
from .estimators import StepClassifier as StepClassifier
from .estimators import StepRegressor as StepRegressor
from .estimators import load as load
from .gated_output import GatedOutput as GatedOutput
from .guide import survey as survey
from .inspect import diagram as diagram
from .inspect import report as report
from .interop.onnx import export as export
from .interop.torch import accelerate as accelerate
from .interop.torch import from_torch as from_torch
from .layer_trace import Trace as Trace
from .layers import Recurrent as Recurrent
from .layers import layer as layer
from .models import CRF as CRF
from .models import HMM as HMM
from .models import NARX as NARX
from .models import TDNN as TDNN
from .models import BaldiBRNN as BaldiBRNN
from .models import ClockworkRNN as ClockworkRNN
from .models import ELMo as ELMo
from .models import EncoderDecoder as EncoderDecoder
from .models import HierarchicalRNN as HierarchicalRNN
from .models import ScalarMix as ScalarMix
from .modifiers import LayerNorm as LayerNorm
from .modifiers import Modifier as Modifier
from .modifiers import RecurrentDropout as RecurrentDropout
from .modifiers import VariationalDropout as VariationalDropout
from .modifiers import WeightDrop as WeightDrop
from .modifiers import Zoneout as Zoneout
from .named_layers import *  # noqa: F403
from .problem import Problem as Problem
from .problem import infer_problem as infer_problem
from .readout import Readout as Readout
from .reservoir import EchoStateNetwork as EchoStateNetwork

class _Compare(ModuleType):
    """`rc.compare` is a package, and calling it runs `recurra.compare.compare`."""

    from .compare import DEFAULT_CELLS as DEFAULT_CELLS
    from .compare import Leaderboard as Leaderboard
    from .compare import LeaderboardEntry as LeaderboardEntry
    from .compare import RunFolderError as RunFolderError
    from .compare import RunInterrupted as RunInterrupted
    from .compare import WorkerError as WorkerError

    cell_families = staticmethod(_cell_families)
    compare = staticmethod(_compare)
    resolve_cells = staticmethod(_resolve_cells)
    __call__ = compare

compare: _Compare

__version__: str
