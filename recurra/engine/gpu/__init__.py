"""The GPU engine: a plan as one persistent kernel.

`tiling.py` decides who computes what, `render.py` writes the kernel, over the helpers of `tiles_gluon.py` (NVIDIA) or
`tiles_triton.py` (Triton's interpreter, one program); `elementary.py` holds the functions of numbers, `run.py` calls it
all. Nothing here imports Triton before a kernel is wanted.
"""
