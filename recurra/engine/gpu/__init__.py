"""The GPU engine: a plan in one of two ways, which `tiers.py` chooses by size and card.

One kernel for all steps: `tiling.py` decides who computes what. `render.py` writes the kernel step by step: `places.py`
knows where values lie, `products.py` how a program waits for what it multiplies, `text.py` holds the growing text. Its
words are those of `tiles_gluon.py` (NVIDIA) or `tiles_triton.py` (Triton's interpreter); `loop.py` calls it.

Step by step: `stepwise_text.py` writes the products and the one kernel after them for each group of a step
(`stages.py`), `window.py` holds their memory and their CUDA graphs, `stepwise.py` leads a sequence through.

Both share `buffers.py`, what memory is called, and `elementary.py`, the functions of numbers. `run.py` calls them,
`after.py` does what is left for after the loop, `describe.py` tells a person about it.
"""
