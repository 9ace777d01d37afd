"""Echo state networks (reservoir computing): a fixed random recurrent network and a trained linear readout."""

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
