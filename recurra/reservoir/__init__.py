"""Echo state networks (reservoir computing): a fixed random recurrent network and a trained linear readout."""

from recurra.optional import optional_imports

with optional_imports("estimators", what="recurra.reservoir"):
    from .matrices import Weights, draw, spectral_radius
    from .network import EchoStateNetwork
    from .nvar import NVAR
    from .readout import RecursiveLeastSquares, Ridge
    from .recipes import intrinsic_plasticity, ring
    from .reservoir_warnings import EchoStateWarning, SeriesWarning
    from .tuning import Tuned, tune

__all__ = [
    "NVAR",
    "EchoStateNetwork",
    "EchoStateWarning",
    "RecursiveLeastSquares",
    "Ridge",
    "SeriesWarning",
    "Tuned",
    "Weights",
    "draw",
    "intrinsic_plasticity",
    "ring",
    "spectral_radius",
    "tune",
]
