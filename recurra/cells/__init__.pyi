"""All built-in cells and their registry. Written by scripts/write_stubs.py; do not edit."""

from collections.abc import Mapping

from ..cell import Cell as Cell
from ..cell import register as register
from .bistable import BRC as BRC
from .bistable import NBRC as NBRC
from .continuous import GRUD as GRUD
from .continuous import LMU as LMU
from .continuous import LTC as LTC
from .continuous import ODERNN as ODERNN
from .continuous import CfC as CfC
from .continuous import PhasedLSTM as PhasedLSTM
from .convolutional import ConvLSTM as ConvLSTM
from .deep import RHN as RHN
from .deep import FastSlowLSTM as FastSlowLSTM
from .descendants import LEM as LEM
from .descendants import SLSTM as SLSTM
from .descendants import UGRNN as UGRNN
from .descendants import AntisymmetricRNN as AntisymmetricRNN
from .descendants import CoRNN as CoRNN
from .descendants import GatedAntisymmetricRNN as GatedAntisymmetricRNN
from .descendants import IndRNN as IndRNN
from .descendants import Janet as Janet
from .descendants import MinGRU as MinGRU
from .descendants import MinLSTM as MinLSTM
from .gated_linear import HGRN as HGRN
from .gated_linear import QRNN as QRNN
from .gated_linear import RGLRU as RGLRU
from .gated_linear import SRU as SRU
from .gated_linear import GateLoop as GateLoop
from .greff import LSTMCIFG as LSTMCIFG
from .greff import LSTMNFG as LSTMNFG
from .greff import LSTMNIAF as LSTMNIAF
from .greff import LSTMNIG as LSTMNIG
from .greff import LSTMNOAF as LSTMNOAF
from .greff import LSTMNOG as LSTMNOG
from .greff import LSTMNP as LSTMNP
from .gru import GRU as GRU
from .gru import MGU as MGU
from .gru import MGU1 as MGU1
from .gru import MGU2 as MGU2
from .gru import MGU3 as MGU3
from .gru import MUT1 as MUT1
from .gru import MUT2 as MUT2
from .gru import MUT3 as MUT3
from .hydrology import EALSTM as EALSTM
from .hydrology import MassConservingLSTM as MassConservingLSTM
from .lstm import LSTM as LSTM
from .lstm import DynamicCortexMemory as DynamicCortexMemory
from .lstm import FullGateLSTM as FullGateLSTM
from .lstm import OriginalFullGateLSTM as OriginalFullGateLSTM
from .lstm import OriginalLSTM as OriginalLSTM
from .lstm import ProjectionLSTM as ProjectionLSTM
from .lstm import SlopeLSTM as SlopeLSTM
from .lstm import VanillaLSTM as VanillaLSTM
from .matrix import MLSTM as MLSTM
from .matrix import RWKV6 as RWKV6
from .matrix import RWKV7 as RWKV7
from .matrix import DeltaNet as DeltaNet
from .matrix import FastWeights as FastWeights
from .matrix import GatedDeltaNet as GatedDeltaNet
from .matrix import GatedLinearAttention as GatedLinearAttention
from .matrix import LinearTransformer as LinearTransformer
from .matrix import Retention as Retention
from .memory import ELSTM as ELSTM
from .memory import NAS as NAS
from .memory import IntersectionRNN as IntersectionRNN
from .memory import MemoryControllerLSTM as MemoryControllerLSTM
from .memory import NestedLSTM as NestedLSTM
from .memory import ResidualLSTM as ResidualLSTM
from .memory import WorkingMemoryLSTM as WorkingMemoryLSTM
from .minimal import ATR as ATR
from .minimal import CFN as CFN
from .minimal import RAN as RAN
from .minimal import SGRN as SGRN
from .minimal import STAR as STAR
from .minimal import FastGRNN as FastGRNN
from .minimal import FastRNN as FastRNN
from .minimal import LightRU as LightRU
from .minimal import LiGRU as LiGRU
from .minimal import MinimalRNN as MinimalRNN
from .minimal import MiRU1 as MiRU1
from .minimal import MiRU2 as MiRU2
from .multiplicative import DSGU as DSGU
from .multiplicative import SGU as SGU
from .multiplicative import MogrifierLSTM as MogrifierLSTM
from .multiplicative import MultiplicativeLSTM as MultiplicativeLSTM
from .multiplicative import MultiplicativeRNN as MultiplicativeRNN
from .neuroscience import CTRNN as CTRNN
from .neuroscience import LowRankRNN as LowRankRNN
from .oscillators import UnICORNN as UnICORNN
from .plain import IRNN as IRNN
from .plain import RIN as RIN
from .plain import RNN as RNN
from .plain import IdentityRNN as IdentityRNN
from .plain import JordanRNN as JordanRNN
from .plain import OrthogonalRNN as OrthogonalRNN
from .plain import ResidualRNN as ResidualRNN
from .reconstruction import ALRNN as ALRNN
from .reconstruction import PLRNN as PLRNN
from .reconstruction import DendriticPLRNN as DendriticPLRNN
from .reconstruction import ShallowPLRNN as ShallowPLRNN
from .reinforcement import BlockGRU as BlockGRU
from .rssm import RSSM as RSSM
from .spiking import LIF as LIF
from .spiking import SRM as SRM
from .spiking import AdaptiveLIF as AdaptiveLIF
from .spiking import Alpha as Alpha
from .spiking import Izhikevich as Izhikevich
from .spiking import ParametricLIF as ParametricLIF
from .spiking import RecurrentLIF as RecurrentLIF
from .spiking import Synaptic as Synaptic
from .state_space import LRU as LRU
from .state_space import S4D as S4D
from .state_space import S5 as S5
from .state_space import Mamba as Mamba
from .surrogates import spike as spike
from .timescales import SCRN as SCRN
from .timescales import Clockwork as Clockwork
from .timescales import DelayRNN as DelayRNN
from .timescales import FocusedRNN as FocusedRNN
from .timescales import LeakyRNN as LeakyRNN
from .timescales import TauGRU as TauGRU
from .timescales import TemporalKernelRNN as TemporalKernelRNN
from .typed import TGRU as TGRU
from .typed import TLSTM as TLSTM
from .typed import TRNN as TRNN
from .unitary import UnitaryRNN as UnitaryRNN

__all__ = [
    "ALRNN",
    "ATR",
    "BRC",
    "CFN",
    "CTRNN",
    "DSGU",
    "EALSTM",
    "ELSTM",
    "GRU",
    "GRUD",
    "HGRN",
    "IRNN",
    "LEM",
    "LIF",
    "LMU",
    "LRU",
    "LSTM",
    "LSTMCIFG",
    "LSTMNFG",
    "LSTMNIAF",
    "LSTMNIG",
    "LSTMNOAF",
    "LSTMNOG",
    "LSTMNP",
    "LTC",
    "MGU",
    "MGU1",
    "MGU2",
    "MGU3",
    "MLSTM",
    "MUT1",
    "MUT2",
    "MUT3",
    "NAS",
    "NBRC",
    "ODERNN",
    "PLRNN",
    "QRNN",
    "RAN",
    "RGLRU",
    "RHN",
    "RIN",
    "RNN",
    "RWKV6",
    "RWKV7",
    "S4D",
    "S5",
    "SCRN",
    "SGRN",
    "SGU",
    "SLSTM",
    "SRM",
    "SRU",
    "STAR",
    "TGRU",
    "TLSTM",
    "TRNN",
    "UGRNN",
    "AdaptiveLIF",
    "Alpha",
    "AntisymmetricRNN",
    "BlockGRU",
    "CfC",
    "Clockwork",
    "CoRNN",
    "ConvLSTM",
    "DelayRNN",
    "DeltaNet",
    "DendriticPLRNN",
    "DynamicCortexMemory",
    "FastGRNN",
    "FastRNN",
    "FastSlowLSTM",
    "FastWeights",
    "FocusedRNN",
    "FullGateLSTM",
    "GateLoop",
    "GatedAntisymmetricRNN",
    "GatedDeltaNet",
    "GatedLinearAttention",
    "IdentityRNN",
    "IndRNN",
    "IntersectionRNN",
    "Izhikevich",
    "Janet",
    "JordanRNN",
    "LeakyRNN",
    "LiGRU",
    "LightRU",
    "LinearTransformer",
    "LowRankRNN",
    "Mamba",
    "MassConservingLSTM",
    "MemoryControllerLSTM",
    "MiRU1",
    "MiRU2",
    "MinGRU",
    "MinLSTM",
    "MinimalRNN",
    "MogrifierLSTM",
    "MultiplicativeLSTM",
    "MultiplicativeRNN",
    "NestedLSTM",
    "OriginalFullGateLSTM",
    "OriginalLSTM",
    "OrthogonalRNN",
    "ParametricLIF",
    "PhasedLSTM",
    "ProjectionLSTM",
    "RecurrentLIF",
    "ResidualLSTM",
    "ResidualRNN",
    "Retention",
    "ShallowPLRNN",
    "SlopeLSTM",
    "Synaptic",
    "TauGRU",
    "TemporalKernelRNN",
    "UnICORNN",
    "UnitaryRNN",
    "VanillaLSTM",
    "WorkingMemoryLSTM",
]

def canonical_names() -> list[str]: ...
def find(name: str) -> type[Cell]: ...
def registry() -> Mapping[str, type[Cell]]: ...
