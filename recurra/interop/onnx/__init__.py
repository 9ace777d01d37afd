"""ONNX export: layers and modules as files, rendered from the plan that the engines run and checked in onnxruntime.

| stage | file | gives |
|---|---|---|
| 1 | `real.py` | complex equations in real numbers |
| 2 | `operations.py`, `render.py` (on `graph.py`) | planned nodes as ONNX operations |
| 3 | `loop.py` | a cell over time: ONNX's Scan |
| 4 | `layer.py` | depth, directions, lengths and states around the loops |
| 5 | `module.py` | any module with layers inside; torch exports the rest |
| 6 | `check.py` | a comparison of file and model at sizes other than the example's |
| 7 | `write.py` | the file, if both agree |
"""

from .export_errors import ExportError, MissingPackageError
from .write import export

__all__ = ["ExportError", "MissingPackageError", "export"]
