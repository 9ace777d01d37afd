"""Measurements of a recurrent model on data, diagrams, and the HTML report: one measurement a file.

`gradient_flow`, `jacobian_spectrum`, `weight_spectrum`, `lyapunov`, `memory_curve`, `gate_activity`, `influence` and
`health` take `(model, data)` and return a result with the numbers, `.figure()` (plotly) and `.summary()`. `diagram`
draws a cell or a model as SVG, `flow` the slow points of a dynamical system and the movement around them. `report`
writes all measurements to one self-contained HTML page. A measurement runs a copy of the model and leaves the model
itself unchanged. `curves`, `heatmap`, `orbits` and `side_by_side` show given numbers and drawings in the same style.
"""

from .diagram import Diagram, diagram
from .exponents import Lyapunov, lyapunov
from .flow import Flow, flow
from .gates import GateActivity, gate_activity
from .gradients import GradientFlow, gradient_flow
from .health import Finding, Health, Monitor, health
from .influence import Influence, influence
from .jacobians import JacobianSpectrum, jacobian_spectrum
from .memory_curve import MemoryCurve, memory_curve
from .plots import SideBySide, curves, heatmap, orbits, side_by_side
from .report import report
from .spectra import WeightSpectrum, weight_spectrum

__all__ = [
    "Diagram",
    "Finding",
    "Flow",
    "GateActivity",
    "GradientFlow",
    "Health",
    "Influence",
    "JacobianSpectrum",
    "Lyapunov",
    "MemoryCurve",
    "Monitor",
    "SideBySide",
    "WeightSpectrum",
    "curves",
    "diagram",
    "flow",
    "gate_activity",
    "gradient_flow",
    "health",
    "heatmap",
    "influence",
    "jacobian_spectrum",
    "lyapunov",
    "memory_curve",
    "orbits",
    "report",
    "side_by_side",
    "weight_spectrum",
]
