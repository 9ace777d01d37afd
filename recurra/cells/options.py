"""What the options of the built-in cells mean, for `help` and for the pages of the cells."""

from ..cell import Cell

_LIF = "the share of the potential that stays at each step, in (0, 1)"
_MODES = "complex units, each of which rotates and decays"

# Options that mean the same in every cell that has one of this name.
COMMON = {
    "timed": "True: the last feature of x is the time since the step before; else every step lasts 1",
    "nonlinearity": "the name of an activation, such as `'relu'`, or a function of a tensor",
    "heads": "independent memories that share hidden_size; None: one for every 64 units",
    "key_size": "numbers of a key of one head; None: as many as its values",
    "threshold": "the potential at which a neuron fires",
    "surrogate": "the derivative that stands in for that of the spike: `'fast_sigmoid'`, `'atan'` or `'triangle'`",
    "slope": "how narrow the surrogate derivative is; None: its default, see `rc.cells.spike`",
    "log_form": "True: a positive candidate, as in the paper's computation in logarithms",
    "squash": "`'tanh'`, or `'1997'`: the scaled sigmoids of the paper",
    "delays": "how many steps back each of the states lies that a step reads",
}
OF_CELL = {
    "LTC": {"unfolds": "steps of the solver between two inputs"},
    "CfC": {"backbone": "units of the hidden layer that all gates share; None: hidden_size"},
    "ODERNN": {
        "steps": "Euler steps of the differential equation between two inputs",
        "units": "units of the hidden layer of the differential equation; None: hidden_size",
    },
    "GRUD": {"mean": "the mean of each feature, to which an unseen one fades: a number, or one per feature"},
    "PhasedLSTM": {
        "ratio": "the share of its period in which a unit is open, in (0, 1]",
        "leak": "how much of an update passes while a unit is closed, in training",
        "longest": "the longest period that is drawn, as a natural logarithm of steps",
    },
    "LMU": {
        "order": "Legendre coefficients of the memory; None: hidden_size",
        "theta": "steps that the memory spans",
    },
    "OriginalLSTM": {"block_size": "memory cells that share an input and an output gate"},
    "ProjectionLSTM": {
        "proj_size": "units of the projection that recurs; None: half of hidden_size",
        "output_proj_size": "units of a second projection, which is put out but does not recur",
        "peepholes": "whether gates read the memory",
        "cell_clip": "the memory is kept between plus and minus this; None: it is free",
        "proj_clip": "the same for the projection",
        "forget_bias": "a number added to the forget gate at every call, not stored in its bias",
    },
    "SlopeLSTM": {"per": "`'unit'`: every unit learns its slopes; `'gate'`: one slope for each gate"},
    "DynamicCortexMemory": {"same_step": "True: gates also read those gates that the same step has just computed"},
    "ConvLSTM": {
        "height": "rows of pixels; input_size and hidden_size are channels × height × width",
        "width": "columns of pixels",
        "kernel": "the width of the convolutions in pixels, an odd number",
    },
    "RHN": {
        "transitions": "highway layers between two steps",
        "coupled": "True: what is carried is one minus what is transformed; False: it has a gate of its own",
        "carry_bias": "how strongly layers carry the state through at first",
    },
    "FastSlowLSTM": {
        "fast": "fast LSTMs in a step, at least 2",
        "slow_size": "units of the slow LSTM; None: hidden_size",
    },
    "IndRNN": {
        "longest": "steps of the longest sequence: no unit grows by more than `gamma` over them; None: unbounded",
        "gamma": "the most by which a unit may grow over `longest` steps",
    },
    "SLSTM": {
        "heads": "groups of units; recurrence stays within a group",
        "forget": "the activation of the forget gate, `'sigmoid'` or `'exp'`",
    },
    "CoRNN": {
        "dt": "the time that a step lasts",
        "gamma": "the stiffness of the oscillators",
        "epsilon": "their damping",
    },
    "AntisymmetricRNN": {"epsilon": "the time that a step lasts", "gamma": "the strength of the diffusion γ"},
    "GatedAntisymmetricRNN": {"epsilon": "the time that a step lasts", "gamma": "the strength of the diffusion γ"},
    "LEM": {"dt": "the longest time that a step can last"},
    "Janet": {
        "beta": "β: how far writing is ahead of forgetting; 0 couples them",
        "longest": "steps of the longest dependence, for the biases at the start (chrono initialisation)",
    },
    "FastGRNN": {"rank": "the rank of the factors that replace W and U; None: full matrices"},
    "MiRU1": {"update": "λ, the share of the old state that stays, from 0 to 1"},
    "MiRU2": {
        "update": "λ, the share of the old state that stays, from 0 to 1",
        "reset": "β, the share of the state that the candidate reads, from 0 to 1",
    },
    "SRU": {
        "peepholes": "True: gates read the memory, as in the paper's last version; then it needs the loop",
        "scale": "a factor of the input in the highway; √3 keeps its variance at the start",
    },
    "QRNN": {
        "window": "steps that a convolution reads, at least 2",
        "pooling": "the gates of the pooling: `'f'` (forget), `'fo'` (and output) or `'ifo'` (and input)",
    },
    "HGRN": {"floor": "the least share of the past that stays; larger in upper layers, in the paper"},
    "RGLRU": {
        "power": "the power to which a fully open gate raises the decay",
        "low": "decays of a step with an open gate are drawn between `low` …",
        "high": "… and `high`",
    },
    "GRU": {"reset_after": "True: the reset gate acts after the product with W, as in torch and Keras; else before"},
    "EALSTM": {"static": "features, the last ones of x, that are constant and alone make the input gate; None: one"},
    "MassConservingLSTM": {"mass": "features, the first ones of x, whose sum is kept as mass"},
    "Retention": {"key_size": "numbers of a key of one head, an even number; None: as many as its values"},
    "GatedLinearAttention": {
        "rank": "units of the narrow layer from which decays are computed",
        "temperature": "the logarithm of a decay is divided by it: the larger, the slower the memory fades",
    },
    "RWKV6": {"rank": "units of the narrow layers from which mixing and decays are computed"},
    "RWKV7": {"rank": "units of the narrow layers from which decays and rates are computed"},
    "FastWeights": {
        "decay": "the share of the fast weights that stays at each step",
        "rate": "how strongly the last state is written into them",
        "loops": "how often a step reads them",
    },
    "ELSTM": {"longest": "steps with a scaling factor of their own; later steps have that of the last one"},
    "MultiplicativeRNN": {"factors": "factors that all inputs share; None: hidden_size"},
    "MultiplicativeLSTM": {"standard": "True: the usual candidate and output of an LSTM; else the paper's"},
    "MogrifierLSTM": {"rounds": "how often input and state scale each other; 0 is an LSTM"},
    "CTRNN": {
        "tau": "the time constant of the units, in the unit of `dt`",
        "dt": "the time that a step lasts",
        "excitatory": "the share of units that excite, while all others inhibit (Dale's law); None: no such rule",
        "density": "the share of connections that exist, in (0, 1]",
        "noise": "the standard deviation that private noise gives to a unit without input",
    },
    "LowRankRNN": {
        "rank": "the rank of the connectivity",
        "tau": "the time constant of the units, in the unit of `dt`",
        "dt": "the time that a step lasts",
    },
    "UnICORNN": {"dt": "the longest time that a step can last", "alpha": "the stiffness of the oscillators"},
    "JordanRNN": {
        "output_size": "units of the output that is fed back; None: hidden_size",
        "decay": "the share of earlier outputs that stays in the trace",
    },
    "IdentityRNN": {
        "scale": "the diagonal of the recurrent matrix at the start",
        "noise": "the standard deviation of the noise around it",
    },
    "IRNN": {"scale": "the diagonal of the recurrent matrix at the start"},
    "OrthogonalRNN": {"determinant": "1: the matrix is a rotation; -1: a rotation and a reflection"},
    "RIN": {"transitions": "how often the unit is applied in one step"},
    "ShallowPLRNN": {
        "units": "units of the hidden layer; None: four times hidden_size",
        "clipped": "True: hidden units are clipped, so that states stay bounded",
    },
    "DendriticPLRNN": {"bases": "rectified branches of every unit"},
    "ALRNN": {"rectified": "units with a rectifier; the others are linear. None: a fifth of them"},
    "BlockGRU": {"blocks": "diagonal blocks of the recurrent matrices; None: up to 8"},
    "LIF": {
        "beta": _LIF,
        "reset": "what a spike does to the potential: `'subtract'` takes the threshold off, `'zero'` clears it",
        "refractory": "steps after a spike in which a neuron stays silent",
    },
    "RecurrentLIF": {"beta": _LIF},
    "ParametricLIF": {"tau": "the time constant at the start, in steps, above 1; it is learned"},
    "AdaptiveLIF": {
        "tau": "the time constant of the potential, in steps",
        "tau_a": "the time constant with which the threshold recovers, in steps",
        "beta": "how far a spike raises the threshold",
    },
    "Synaptic": {"alpha": "the share of the synaptic current that stays at each step, in (0, 1)", "beta": _LIF},
    "Alpha": {
        "alpha": "the share of the excitatory current that stays at each step, in (0, 1)",
        "beta": "the same for the inhibitory current; less than `alpha`",
    },
    "Izhikevich": {
        "a": "how fast the recovery variable follows the potential",
        "b": "how strongly it follows",
        "c": "the potential after a spike, in mV",
        "d": "what a spike adds to the recovery variable",
    },
    "SRM": {
        "tau": "the time constant of the response to an input, in steps",
        "tau_r": "that of the refractory dip after a spike",
    },
    "LRU": {
        "modes": f"{_MODES}; None: hidden_size",
        "smallest": "the least modulus at the start",
        "largest": "the greatest modulus at the start",
        "phase": "the greatest angle of a rotation at the start",
    },
    "S5": {
        "modes": f"{_MODES}; None: half of hidden_size",
        "shortest": "the shortest time that a step lasts for a mode, at the start",
        "longest": "the longest",
    },
    "S4D": {
        "modes": f"{_MODES}, for every unit",
        "shortest": "the shortest time that a step lasts for a unit, at the start",
        "longest": "the longest",
    },
    "Mamba": {
        "state_size": "states of every unit",
        "window": "steps that the short convolution reads, at least 2",
        "rank": "units of the narrow layer from which step lengths are computed; None: a sixteenth of input_size",
        "shortest": "the shortest time that a step lasts for a unit, at the start",
        "longest": "the longest",
    },
    "LeakyRNN": {
        "tau": "time constants of at least 1 step: a number, or one per unit; None: drawn from 1 to `longest`",
        "longest": "the longest time constant that is drawn, in steps",
        "learn": "whether time constants are learned",
    },
    "TemporalKernelRNN": {
        "decay": "the share of the past that stays in the sum at the start, in (0, 1)",
        "learn": "whether the decay is learned",
    },
    "SCRN": {
        "context_size": "slow units; None: 40 % of hidden_size",
        "alpha": "the share of its past that a slow unit keeps",
        "adaptive": "True: every slow unit learns its share",
        "context": "the slow units that fast ones read: those of the `'current'` step (paper) or the `'previous'` one",
        "start": "the value of all states before the first step",
    },
    "FocusedRNN": {"decay": "the share of its past that a unit keeps at the start, in (0, 1)"},
    "TauGRU": {"delay": "how much further back the delayed state lies, in steps"},
    "Clockwork": {"periods": "every how many steps each group of units is updated, in ascending order"},
}


def meaning(kind: type[Cell], option: str) -> str:
    """What an option of a cell means; empty for one that is not built in."""
    if not kind.__module__.startswith(__package__ or "recurra.cells"):
        return ""
    return OF_CELL.get(kind.__name__, {}).get(option) or COMMON.get(option, "")
