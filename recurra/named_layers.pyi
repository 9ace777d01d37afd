"""A layer class for every built-in cell. Written by scripts/write_stubs.py; do not edit."""

from collections.abc import Callable, Sequence

import torch

from .cell import Cell
from .layers import Recurrent
from .modifiers import Modifier

class ALRNN(Recurrent):
    """Almost-linear RNN: a PLRNN of which only the last `rectified` units are rectified, for few linear pieces."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        rectified: int | None = None,
    ) -> None: ...

class ATR(Recurrent):
    """Addition-subtraction twin gates: p + q opens the input gate, p - q the forget gate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class AdaptiveLIF(Recurrent):
    """Recurrent LIF neurons whose threshold rises with each spike and recovers slowly, a long memory (LSNN)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        tau: float = 20.0,
        tau_a: float = 200.0,
        beta: float = 1.8,
        threshold: float = 0.01,
        surrogate: str = "triangle",
        slope: float | None = None,
    ) -> None: ...

class Alpha(Recurrent):
    """Alpha neurons: an excitatory and an inhibitory current shape each input into a bump of the potential."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        alpha: float = 0.9,
        beta: float = 0.8,
        threshold: float = 1.0,
        surrogate: str = "fast_sigmoid",
        slope: float | None = None,
    ) -> None: ...

class AntisymmetricRNN(Recurrent):
    """Euler step of a stable differential equation with the antisymmetric matrix W = M - Mᵀ - γI."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        epsilon: float = 0.1,
        gamma: float = 0.1,
    ) -> None: ...

class BRC(Recurrent):
    """Bistable cell: each unit reads only its own state, and has two stable ones where its gain exceeds one."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class BlockGRU(Recurrent):
    """GRU of DreamerV3: recurrent matrices of diagonal blocks, the reset after the product, updates shut by one."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        blocks: int | None = None,
    ) -> None: ...

class CFN(Recurrent):
    """Chaos-free network: a forget and an input gate around tanh(h) and tanh(x); without input the state decays."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class CTRNN(Recurrent):
    """Continuous-time rate network; options: Dale's law (`excitatory`), a share of connections (`density`), noise."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        tau: float = 100.0,
        dt: float = 20.0,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "relu",
        excitatory: float | None = None,
        density: float = 1.0,
        noise: float = 0.0,
    ) -> None: ...

class CfC(Recurrent):
    """Closed-form continuous-time network: a time gate fades from one candidate to another as time passes."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        timed: bool = False,
        backbone: int | None = None,
    ) -> None: ...

class Clockwork(Recurrent):
    """Groups of units with periods: a group changes where its period divides the time, and reads slower groups."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        periods: Sequence[int] = (1, 2, 4, 8),
    ) -> None: ...

class CoRNN(Recurrent):
    """Coupled oscillators with position y and velocity z, damped and driven by the input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        dt: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
    ) -> None: ...

class ConvLSTM(Recurrent):
    """Peephole LSTM of pictures: products are convolutions, made into matrices once per call; for small pictures."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        height: int = 1,
        width: int = 1,
        kernel: int = 3,
    ) -> None: ...

class DSGU(Recurrent):
    """Deep simple gated unit: an SGU with one more product and a sigmoid for the candidate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class DelayRNN(Recurrent):
    """RNN that also reads states several steps back, each with its own matrix (NARX network)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        delays: Sequence[int] = (1, 3),
    ) -> None: ...

class DeltaNet(Recurrent):
    """Fast weights written by the delta rule: what a key reads is moved towards its value by the rate β."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
    ) -> None: ...

class DendriticPLRNN(Recurrent):
    """PLRNN whose units have `bases` branches with thresholds: piecewise linear with many more pieces."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        bases: int = 5,
    ) -> None: ...

class DynamicCortexMemory(Recurrent):
    """Peephole LSTM with gate recurrence inside each cell: diagonal matrices between its gates."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        same_step: bool = False,
    ) -> None: ...

class EALSTM(Recurrent):
    """Entity-aware LSTM: the input gate reads only static features, the last `static` ones of x."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        static: int | None = None,
    ) -> None: ...

class ELSTM(Recurrent):
    """Extended LSTM: what step k writes is scaled by a learned number s_k; steps after `longest` share the last."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        longest: int = 100,
    ) -> None: ...

class FastGRNN(Recurrent):
    """Gate and candidate share their matrices and differ in the bias; `rank` makes both matrices products."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        rank: int | None = None,
    ) -> None: ...

class FastRNN(Recurrent):
    """RNN with a weighted residual connection: two learned numbers mix candidate and past."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
    ) -> None: ...

class FastSlowLSTM(Recurrent):
    """A chain of fast LSTMs within one step; a slow LSTM reads the first and is read by the second."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        fast: int = 2,
        slow_size: int | None = None,
    ) -> None: ...

class FastWeights(Recurrent):
    """Rectified units with a second, fast weight matrix A: a decaying sum of outer products of recent states."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        decay: float = 0.95,
        rate: float = 0.5,
        loops: int = 1,
    ) -> None: ...

class FocusedRNN(Recurrent):
    """Focused network: units that read only themselves and the input, so that exact gradients need no history."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        decay: float = 0.9,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
    ) -> None: ...

class FullGateLSTM(Recurrent):
    """Peephole LSTM with full gate recurrence: every gate also reads all gates of the previous step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class GRU(Recurrent):
    """Gated recurrent unit, the reset gate before the product (the survey) or after it (torch and Keras)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        reset_after: bool = False,
    ) -> None: ...

class GRUD(Recurrent):
    """GRU for missing values (NaN): inputs fade to their mean, and the state to 0, the longer ago they were seen."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        timed: bool = False,
        mean: float | torch.Tensor = 0.0,
    ) -> None: ...

class GateLoop(Recurrent):
    """Complex units whose decay and rotation are both read from x; keys and queries gate what enters and leaves."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class GatedAntisymmetricRNN(Recurrent):
    """AntisymmetricRNN with a gate; gate and candidate share the recurrent matrix."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        epsilon: float = 0.1,
        gamma: float = 0.1,
    ) -> None: ...

class GatedDeltaNet(Recurrent):
    """The delta rule on a memory that decays by α; queries and keys have length one."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
    ) -> None: ...

class GatedLinearAttention(Recurrent):
    """Linear attention whose memory decays by α, which x sets for every key."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
        rank: int = 16,
        temperature: float = 16.0,
    ) -> None: ...

class HGRN(Recurrent):
    """Hierarchically gated network: complex units that rotate and decay; `floor` bounds the gate from below."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        floor: float = 0.0,
    ) -> None: ...

class IRNN(Recurrent):
    """RNN with ReLU whose recurrent matrix starts at the identity."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        scale: float = 1.0,
    ) -> None: ...

class IdentityRNN(Recurrent):
    """RNN whose recurrent matrix starts close to the identity, so that it remembers from the start."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        scale: float = 0.95,
        noise: float = 0.001,
    ) -> None: ...

class IndRNN(Recurrent):
    """Independently recurrent network: the recurrent matrix is diagonal, bounded for sequences of `longest` steps."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        longest: int | None = None,
        gamma: float = 2.0,
    ) -> None: ...

class IntersectionRNN(Recurrent):
    """RNN with two gates: one passes x on to the output, one keeps the state; other sizes project x first."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Izhikevich(Recurrent):
    """Two quadratic equations per neuron that spike, burst, chatter or resonate, by four numbers; 1 ms per step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        a: float = 0.02,
        b: float = 0.2,
        c: float = -65.0,
        d: float = 8.0,
        surrogate: str = "fast_sigmoid",
        slope: float | None = 1.0,
    ) -> None: ...

class Janet(Recurrent):
    """LSTM with only a forget gate; with β > 0 it writes more than it forgets."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        beta: float = 1.0,
        longest: float = 100.0,
    ) -> None: ...

class JordanRNN(Recurrent):
    """Jordan network: its output, added to a decaying trace of earlier outputs, is fed back in place of the state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        output_size: int | None = None,
        decay: float = 0.5,
    ) -> None: ...

class LEM(Recurrent):
    """Long expressive memory: two coupled states, each with a learned time step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        dt: float = 1.0,
    ) -> None: ...

class LIF(Recurrent):
    """Leaky integrate-and-fire neurons: the potential decays by β, a spike subtracts the threshold or resets to 0."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        beta: float = 0.9,
        threshold: float = 1.0,
        reset: str = "subtract",
        refractory: int = 0,
        surrogate: str = "fast_sigmoid",
        slope: float | None = None,
    ) -> None: ...

class LMU(Recurrent):
    """Legendre memory: a linear memory holds the last `theta` steps as Legendre coefficients; an RNN reads it."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        order: int | None = None,
        theta: float = 100.0,
    ) -> None: ...

class LRU(Recurrent):
    """Linear recurrent unit: a diagonal complex recurrence that starts on a ring, read out by a matrix."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        modes: int | None = None,
        smallest: float = 0.0,
        largest: float = 1.0,
        phase: float = 6.283185307179586,
    ) -> None: ...

class LSTM(Recurrent):
    """LSTM with input, forget and output gates, without peepholes: the common default."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMCIFG(Recurrent):
    """Coupled input and forget gate: what is written is what is forgotten, f = 1 - i."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNFG(Recurrent):
    """No forget gate: the memory only accumulates."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNIAF(Recurrent):
    """No input activation function: the candidate is linear."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNIG(Recurrent):
    """No input gate: the candidate is always written."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNOAF(Recurrent):
    """No output activation function: the memory is read as it is."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNOG(Recurrent):
    """No output gate: the memory is always read."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNP(Recurrent):
    """No peepholes: the equations of `lstm` with the study's initialisation, without a forget bias of 1."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LTC(Recurrent):
    """Liquid time constants: a gate f of input and state sets both time constant and target; fused solver steps."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        timed: bool = False,
        unfolds: int = 6,
    ) -> None: ...

class LeakyRNN(Recurrent):
    """Leaky-integrator RNN: each unit has a time constant τ ≥ 1; with τ = 1 it is an RNN."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        tau: float | torch.Tensor | None = None,
        longest: float = 100.0,
        learn: bool = False,
    ) -> None: ...

class LiGRU(Recurrent):
    """Light GRU: no reset gate, a rectified candidate. The paper also normalises the products with x by batch."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LightRU(Recurrent):
    """Light recurrent unit: one gate reads the state, the candidate only the input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LinearTransformer(Recurrent):
    """Attention with the kernel elu + 1 as a recurrence: S sums outer products, z sums keys to normalise them."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
    ) -> None: ...

class LowRankRNN(Recurrent):
    """Rate network whose connectivity is M Nᵀ / H of rank `rank`: the dynamics stay in few dimensions."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        rank: int = 1,
        tau: float = 100.0,
        dt: float = 20.0,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
    ) -> None: ...

class MGU(Recurrent):
    """Minimal gated unit: one gate resets and updates. f = 1 overwrites the state, unlike LSTM's forget gate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MGU1(Recurrent):
    """MGU whose gate does not read the input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MGU2(Recurrent):
    """MGU whose gate reads only the state, without bias."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MGU3(Recurrent):
    """MGU whose gate is a constant per unit."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MLSTM(Recurrent):
    """LSTM with a matrix memory C, exponential gates, a normaliser n and a stabiliser m; the matrix cell of xLSTM."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
    ) -> None: ...

class MUT1(Recurrent):
    """First mutation of the GRU: the update gate reads the input only, the candidate tanh(x)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MUT2(Recurrent):
    """Second mutation of the GRU: the reset gate reads x without a weight."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MUT3(Recurrent):
    """Third mutation of the GRU: the update gate reads tanh(h)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Mamba(Recurrent):
    """Selective state space: step length, input and output of every unit's states are read from a short convolution."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        state_size: int = 16,
        window: int = 4,
        rank: int | None = None,
        shortest: float = 0.001,
        longest: float = 0.1,
    ) -> None: ...

class MassConservingLSTM(Recurrent):
    """LSTM that conserves mass: what enters by the first `mass` features stays in c or leaves in the output."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        mass: int = 1,
    ) -> None: ...

class MemoryControllerLSTM(Recurrent):
    """LSTM with two output gates: one for the output, one for the control vector v that the gates read."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MiRU1(Recurrent):
    """Minion unit: a GRU whose update gate is one fixed number λ."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        update: float = 0.5,
    ) -> None: ...

class MiRU2(Recurrent):
    """Minion unit without gates: fixed numbers β and λ in the places of a GRU's reset and update gate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        update: float = 0.5,
        reset: float = 0.5,
    ) -> None: ...

class MinGRU(Recurrent):
    """GRU whose gate and candidate read only the input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        log_form: bool = False,
    ) -> None: ...

class MinLSTM(Recurrent):
    """LSTM whose gates and candidate read only the input; the gates are normalised to sum to one."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        log_form: bool = False,
    ) -> None: ...

class MinimalRNN(Recurrent):
    """One gate between the past and a latent z = tanh(U x + b), which the gate reads as well."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MogrifierLSTM(Recurrent):
    """LSTM before which input and state scale each other in turn, for several rounds."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        rounds: int = 5,
    ) -> None: ...

class MultiplicativeLSTM(Recurrent):
    """LSTM whose gates read m = (U x) (W h) in the place of h; `standard` squashes where an LSTM does."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        standard: bool = False,
    ) -> None: ...

class MultiplicativeRNN(Recurrent):
    """RNN whose recurrent matrix is W diag(V x) R: one for every input, from shared factors."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        factors: int | None = None,
    ) -> None: ...

class NAS(Recurrent):
    """The cell that neural architecture search found for Penn Treebank: a tree over eight products, and a memory."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class NBRC(Recurrent):
    """Neuromodulated bistable cell: gain and gate of a unit read the whole state."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class NestedLSTM(Recurrent):
    """LSTM whose memory is the output of an inner LSTM with the memory d."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class ODERNN(Recurrent):
    """The state follows a learned differential equation between inputs; a GRU takes each input in."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        timed: bool = False,
        steps: int = 4,
        units: int | None = None,
    ) -> None: ...

class OriginalFullGateLSTM(Recurrent):
    """The first LSTM with full gate recurrence: no forget gate; both gates also read both gates of the last step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        squash: str = "1997",
    ) -> None: ...

class OriginalLSTM(Recurrent):
    """The first LSTM: no forget gate; blocks of memory cells may share their gates."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        squash: str = "tanh",
        block_size: int = 1,
    ) -> None: ...

class OrthogonalRNN(Recurrent):
    """RNN whose recurrent matrix is orthogonal, and stays so in training; its determinant, 1 or -1, is chosen."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
        determinant: int = 1,
    ) -> None: ...

class PLRNN(Recurrent):
    """Piecewise-linear RNN: z = A z + W relu(z) + C x + b, with a diagonal A and a W without diagonal."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class ParametricLIF(Recurrent):
    """LIF neurons with one learned time constant, and a hard reset to 0."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        tau: float = 2.0,
        threshold: float = 1.0,
        surrogate: str = "atan",
        slope: float | None = None,
    ) -> None: ...

class PhasedLSTM(Recurrent):
    """Peephole LSTM whose units open periodically: a time gate with a period and a phase lets them change."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        timed: bool = False,
        ratio: float = 0.05,
        leak: float = 0.001,
        longest: float = 3.0,
    ) -> None: ...

class ProjectionLSTM(Recurrent):
    """LSTM with a large memory whose output is projected to fewer units before it recurs."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        proj_size: int | None = None,
        output_proj_size: int = 0,
        peepholes: bool = True,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 0.0,
    ) -> None: ...

class QRNN(Recurrent):
    """Quasi-recurrent network: gates and candidate are convolutions over the last inputs, the pooling is linear."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        window: int = 2,
        pooling: str = "fo",
    ) -> None: ...

class RAN(Recurrent):
    """Recurrent additive network: an LSTM whose candidate is linear in the input and whose output has no gate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
    ) -> None: ...

class RGLRU(Recurrent):
    """Real-gated linear unit of Griffin: a learned decay to the power of a gate; a longer past shrinks the input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        power: float = 8.0,
        low: float = 0.9,
        high: float = 0.999,
    ) -> None: ...

class RHN(Recurrent):
    """Recurrent highway network: `transitions` highway layers between two steps; the first one reads x."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        transitions: int = 3,
        coupled: bool = True,
        carry_bias: float = 2.0,
    ) -> None: ...

class RIN(Recurrent):
    """Recurrent identity network: ReLU and W + I, one or several times per step."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        transitions: int = 1,
    ) -> None: ...

class RNN(Recurrent):
    """Simple recurrent network, also known as Elman network or vanilla RNN: h = φ(W h + U x + b)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
    ) -> None: ...

class RWKV6(Recurrent):
    """Linear attention with a decay w that x sets and a bonus u for the present key (Finch)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
        rank: int = 32,
    ) -> None: ...

class RWKV7(Recurrent):
    """A memory that decays by w and unlearns, at the rate a, what it holds at the removal key r (Goose)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
        rank: int = 32,
    ) -> None: ...

class RecurrentLIF(Recurrent):
    """LIF neurons that also read each other's last spikes."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        beta: float = 0.9,
        threshold: float = 1.0,
        surrogate: str = "fast_sigmoid",
        slope: float | None = None,
    ) -> None: ...

class ResidualLSTM(Recurrent):
    """Peephole LSTM whose projected memory and input are added before the output gate; equal sizes add x itself."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class ResidualRNN(Recurrent):
    """RNN with the previous state added before the activation: W + I in place of W."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class Retention(Recurrent):
    """A memory that each head forgets at its own fixed rate; queries and keys turn with time (RetNet)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int | None = None,
        key_size: int | None = None,
    ) -> None: ...

class S4D(Recurrent):
    """Diagonal state space: every unit has HiPPO modes of its own, by zero-order hold, and adds them up."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        modes: int = 16,
        shortest: float = 0.001,
        longest: float = 0.1,
    ) -> None: ...

class S5(Recurrent):
    """Simplified state space: one diagonal HiPPO system for all inputs, by zero-order hold, read out by a matrix."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        modes: int | None = None,
        shortest: float = 0.001,
        longest: float = 0.1,
    ) -> None: ...

class SCRN(Recurrent):
    """Structurally constrained recurrent network: slow linear units s, fast units h; the output is [h; s]."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        context_size: int | None = None,
        alpha: float = 0.95,
        adaptive: bool = False,
        context: str = "current",
        start: float = 0.0,
    ) -> None: ...

class SGRN(Recurrent):
    """Simple gated recurrent network: one gate, whose product with x is the candidate, too."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class SGU(Recurrent):
    """Simple gated unit: the input multiplies the state, and the product gates it; one update gate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class SLSTM(Recurrent):
    """LSTM with exponential gates, a normaliser n and a stabiliser m; recurrence stays within each head."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int = 1,
        forget: str = "sigmoid",
    ) -> None: ...

class SRM(Recurrent):
    """Spike response model: each input leaves an alpha-shaped response, each spike a refractory dip."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        tau: float = 5.0,
        tau_r: float = 2.0,
        threshold: float = 1.0,
        surrogate: str = "fast_sigmoid",
        slope: float | None = None,
    ) -> None: ...

class SRU(Recurrent):
    """Simple recurrent unit: a forget gate over a linear candidate, and a highway around them."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        peepholes: bool = False,
        scale: float = 1.7320508075688772,
    ) -> None: ...

class STAR(Recurrent):
    """Stackable recurrent unit: one gate, a candidate of the input alone, and a squashed sum, for deep stacks."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class ShallowPLRNN(Recurrent):
    """PLRNN with a hidden layer of `units`; clipped, its states stay bounded wherever |A| < 1."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        units: int | None = None,
        clipped: bool = False,
    ) -> None: ...

class SlopeLSTM(Recurrent):
    """Peephole LSTM whose gates learn the slopes of their sigmoids."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        per: str = "unit",
    ) -> None: ...

class Synaptic(Recurrent):
    """LIF neurons behind synapses: the input drives a decaying current i, the current the potential."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        alpha: float = 0.8,
        beta: float = 0.9,
        threshold: float = 1.0,
        surrogate: str = "fast_sigmoid",
        slope: float | None = None,
    ) -> None: ...

class TGRU(Recurrent):
    """Strongly typed GRU: the gates read the present and the last input; the state forgets and adds."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class TLSTM(Recurrent):
    """Strongly typed LSTM: a memory that averages, and an output factor; both read the present and the last input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class TRNN(Recurrent):
    """Strongly typed RNN: a running average of z = U x, weighted by a gate of the input."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class TauGRU(Recurrent):
    """GRU for a delay equation: besides a candidate of the last state, one of the state `delay` steps before it."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        delay: int = 10,
    ) -> None: ...

class TemporalKernelRNN(Recurrent):
    """RNN whose pre-activation is a decaying sum over all earlier steps."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        decay: float = 0.9,
        learn: bool = True,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "sigmoid",
    ) -> None: ...

class UGRNN(Recurrent):
    """Update-gate RNN: one gate chooses between the past and the candidate."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class UnICORNN(Recurrent):
    """Undamped independent oscillators: each unit reads only itself and the input; the steps conserve volume."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        dt: float = 0.1,
        alpha: float = 1.0,
    ) -> None: ...

class UnitaryRNN(Recurrent):
    """Unitary evolution network: W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁ in O(n) parameters; state and output are [Re h; Im h]."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class VanillaLSTM(Recurrent):
    """LSTM whose gates read the memory through peepholes."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class WorkingMemoryLSTM(Recurrent):
    """LSTM whose gates read the memory through a matrix and a tanh: working memory connections (WMC-LSTM)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int | Sequence[int],
        num_layers: int | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool | str = False,
        *,
        depth: str = "stack",
        dilation: int | Sequence[int] = 1,
        initial: str = "zeros",
        checkpoint: bool = False,
        parallel: str = "auto",
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
