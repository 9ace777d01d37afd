"""Cells whose states are matrices: one kernel for all steps, in which a row's matrices stay in registers.

`phases.py` splits a program into what runs for all steps before the loop, the loop, and what follows it. `axes.py`
finds the axes of every value of the loop, `layout.py` which of them programs share, `tiles.py` writes the operations on
tiles, `codegen.py` the kernels, `rows.py` runs the phases around the loop, `runner.py` all of it.
"""
