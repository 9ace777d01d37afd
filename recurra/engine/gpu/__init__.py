"""The GPU engine: a plan as one persistent kernel.

`tiling.py` decides who computes what. `render.py` writes the kernel step by step: `places.py` knows where values lie,
`products.py` how a program waits for what it multiplies, `elementary.py` the functions of numbers, `text.py` holds the
growing text. Its words are those of `tiles_gluon.py` (NVIDIA) or `tiles_triton.py` (Triton's interpreter). `run.py`
calls it, `after.py` does what is left for after the loop, `describe.py` tells a person about it.
"""
