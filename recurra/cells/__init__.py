"""The zoo: every cell of the survey and its descendants, one family a file. Importing it registers them."""

from .descendants import (
    LEM,
    SLSTM,
    UGRNN,
    AntisymmetricRNN,
    CoRNN,
    GatedAntisymmetricRNN,
    IndRNN,
    Janet,
    MinGRU,
    MinLSTM,
)
from .greff import LSTMCIFG, LSTMNFG, LSTMNIAF, LSTMNIG, LSTMNOAF, LSTMNOG
from .gru import GRU, MGU, MGU1, MGU2, MGU3, MUT1, MUT2, MUT3
from .lstm import LSTM, DynamicCortexMemory, FullGateLSTM, OriginalLSTM, ProjectionLSTM, SlopeLSTM, VanillaLSTM
from .plain import IRNN, RIN, RNN, IdentityRNN, OrthogonalRNN, ResidualRNN
from .timescales import SCRN, DelayRNN, FocusedRNN, LeakyRNN, TemporalKernelRNN
from .unitary import UnitaryRNN

__all__ = [
    "GRU",
    "IRNN",
    "LEM",
    "LSTM",
    "LSTMCIFG",
    "LSTMNFG",
    "LSTMNIAF",
    "LSTMNIG",
    "LSTMNOAF",
    "LSTMNOG",
    "MGU",
    "MGU1",
    "MGU2",
    "MGU3",
    "MUT1",
    "MUT2",
    "MUT3",
    "RIN",
    "RNN",
    "SCRN",
    "SLSTM",
    "UGRNN",
    "AntisymmetricRNN",
    "CoRNN",
    "DelayRNN",
    "DynamicCortexMemory",
    "FocusedRNN",
    "FullGateLSTM",
    "GatedAntisymmetricRNN",
    "IdentityRNN",
    "IndRNN",
    "Janet",
    "LeakyRNN",
    "MinGRU",
    "MinLSTM",
    "OriginalLSTM",
    "OrthogonalRNN",
    "ProjectionLSTM",
    "ResidualRNN",
    "SlopeLSTM",
    "TemporalKernelRNN",
    "UnitaryRNN",
    "VanillaLSTM",
]
