"""Echo state networks: a fixed random recurrent network, and a readout that is all there is to learn."""

from recurra.optional import optional_imports

with optional_imports("estimators", what="recurra.reservoir"):
    from .matrices import Weights, draw, spectral_radius
    from .network import EchoStateNetwork
    from .readout import RecursiveLeastSquares, Ridge
    from .reservoir_warnings import EchoStateWarning, SeriesWarning

__all__ = [
    "EchoStateNetwork",
    "EchoStateWarning",
    "RecursiveLeastSquares",
    "Ridge",
    "SeriesWarning",
    "Weights",
    "draw",
    "spectral_radius",
]
