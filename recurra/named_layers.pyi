"""A layer class for every built-in cell. Written by scripts/write_stubs.py; do not edit."""

from collections.abc import Callable, Sequence

import torch

from .cell import Cell
from .layers import Recurrent
from .modifiers import Modifier

class AntisymmetricRNN(Recurrent):
    """A step of a stable differential equation: W = M - Mᵀ - γI neither grows nor shrinks the state."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        epsilon: float = 0.1,
        gamma: float = 0.1,
    ) -> None: ...

class CoRNN(Recurrent):
    """Coupled oscillators: position y and velocity z, damped and driven."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        dt: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
    ) -> None: ...

class DelayRNN(Recurrent):
    """RNN that also reads states several steps back, each through a matrix of its own."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        delays: Sequence[int] = (1, 3),
    ) -> None: ...

class DynamicCortexMemory(Recurrent):
    """Peephole LSTM whose gates of one cell talk to each other: gate recurrence with diagonal matrices."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        same_step: bool = False,
    ) -> None: ...

class FocusedRNN(Recurrent):
    """Context units that see only themselves and the input, so that exact gradients need no history."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        decay: float = 0.9,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
    ) -> None: ...

class FullGateLSTM(Recurrent):
    """Peephole LSTM with full gate recurrence: every gate also sees all gates of the previous step."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        reset_after: bool = False,
    ) -> None: ...

class GatedAntisymmetricRNN(Recurrent):
    """AntisymmetricRNN whose step is gated; gate and candidate share the recurrent matrix."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        epsilon: float = 0.1,
        gamma: float = 0.1,
    ) -> None: ...

class IRNN(Recurrent):
    """Rectified RNN that starts at the identity."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        scale: float = 1.0,
    ) -> None: ...

class IdentityRNN(Recurrent):
    """RNN whose recurrent matrix starts close to the identity, so that it starts by remembering."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        scale: float = 0.95,
        noise: float = 0.001,
    ) -> None: ...

class IndRNN(Recurrent):
    """Units that see only their own past: the matrix is diagonal, bounded for sequences of `longest` steps."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        longest: int | None = None,
        gamma: float = 2.0,
    ) -> None: ...

class Janet(Recurrent):
    """LSTM with nothing but its forget gate; β makes it write a little more than it forgets."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        beta: float = 1.0,
        longest: float = 100.0,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        dt: float = 1.0,
    ) -> None: ...

class LSTM(Recurrent):
    """LSTM with input, forget and output gates, without peepholes: today's default."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNFG(Recurrent):
    """No forget gate: the memory only adds up."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LSTMNIG(Recurrent):
    """No input gate: the candidate is written whole."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
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
        initial: str = "zeros",
        checkpoint: bool = False,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class LeakyRNN(Recurrent):
    """RNN whose units leak at their own rate: τ = 1 keeps no copy of the past, a large τ remembers for τ steps."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        tau: float | torch.Tensor | None = None,
        longest: float = 100.0,
        learn: bool = False,
    ) -> None: ...

class MGU(Recurrent):
    """Minimal gated unit: one gate resets and overwrites. Its f = 1 overwrites, the reverse of LSTM's forget gate."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MGU1(Recurrent):
    """MGU whose gate does not see the input."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MGU2(Recurrent):
    """MGU whose gate sees the state alone, without bias."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MUT1(Recurrent):
    """First mutant: the update gate sees only the input, the candidate a squashed x."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MUT2(Recurrent):
    """Second mutant: the reset gate sees a bare x."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MUT3(Recurrent):
    """Third mutant: the update gate sees a squashed state."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MinGRU(Recurrent):
    """GRU without a past in its gates."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class MinLSTM(Recurrent):
    """LSTM without a past in its gates, which are normalised to sum to one."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        squash: str = "tanh",
        block_size: int = 1,
    ) -> None: ...

class OrthogonalRNN(Recurrent):
    """RNN whose recurrent matrix is orthogonal and stays so while training."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
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
        initial: str = "zeros",
        checkpoint: bool = False,
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

class RIN(Recurrent):
    """Recurrent identity network: rectified W + I, once or several times a step."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        transitions: int = 1,
    ) -> None: ...

class RNN(Recurrent):
    """The recurrent network: the past through one matrix, the input through another, squashed."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        nonlinearity: str | Callable[[torch.Tensor], torch.Tensor] = "tanh",
    ) -> None: ...

class ResidualRNN(Recurrent):
    """RNN with the previous state added inside the squashing function: W + I in place of W."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class SCRN(Recurrent):
    """Structurally constrained network: slow linear context units beside fast ones; the output is both, [h; s]."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
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

class SLSTM(Recurrent):
    """LSTM with exponential gates, a normaliser n and a stabiliser m; heads mix only within themselves."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        heads: int = 1,
        forget: str = "sigmoid",
    ) -> None: ...

class SlopeLSTM(Recurrent):
    """Peephole LSTM whose gates learn how steep their sigmoids are."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        per: str = "unit",
    ) -> None: ...

class TemporalKernelRNN(Recurrent):
    """RNN whose pre-activation decays instead of being recomputed: it sees all earlier steps, weighted by age."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...

class VanillaLSTM(Recurrent):
    """LSTM whose gates see the memory through peepholes, trained with full BPTT."""

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
        initial: str = "zeros",
        checkpoint: bool = False,
        modifiers: Modifier | Sequence[Modifier] = (),
        init: Callable[[Cell], None] | Sequence[Callable[[Cell], None]] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None: ...
