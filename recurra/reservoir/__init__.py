"""Echo state networks: a fixed random recurrent network, and a readout that is all there is to learn."""

from .errors import EchoStateWarning, SeriesWarning
from .matrices import Weights, draw, spectral_radius
from .network import EchoStateNetwork
from .readout import RecursiveLeastSquares, Ridge

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
