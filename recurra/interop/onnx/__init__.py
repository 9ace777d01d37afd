"""recurra's layers as ONNX files, rendered from the planned step that the engines run, and checked in onnxruntime.

| stage | file | gives |
|---|---|---|
| 1 | `real.py` | complex equations in real numbers |
| 2 | `operations.py`, `render.py` (on `graph.py`) | planned nodes in ONNX's words |
| 3 | `loop.py` | a cell over time: ONNX's Scan |
| 4 | `layer.py` | depth, directions, lengths and states around the loops |
| 5 | `module.py` | any module with layers inside: the rest is written by torch |
| 6 | `check.py` | the file beside the model, at sizes the export never saw |
| 7 | `write.py` | a file that appears only if both agree |
"""

from .export_errors import ExportError, MissingPackageError
from .write import export

__all__ = ["ExportError", "MissingPackageError", "export"]
