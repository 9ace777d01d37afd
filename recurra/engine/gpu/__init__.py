"""The GPU engine: runs a plan as one persistent kernel for all steps, or stepwise from CUDA graphs.

`select.py` chooses between the two by layer size and card; `runner.py` calls them.

`persistent/`: `tiling.py` decides which program computes which rows and columns. `codegen.py` generates the kernel:
`operands.py` finds the values of a step, `products.py` and `row_per_program.py` write the matrix products,
`row_exchange.py` the row sums, `spin_wait.py` the waiting between programs, `kernel_builder.py` collects the lines.
`launch.py` runs it.

`stepwise/`: `codegen.py` generates the matrix products and the fused kernel of each group of a step (`stages.py`),
`graphs.py` captures windows of steps as CUDA graphs, `run.py` runs a sequence through them.

`matrix/`: cells whose states are matrices, as one kernel of its own kind.

Generated kernels call the tile functions of `tiles_gluon.py` (NVIDIA) or `tiles_triton.py` (stepwise kernels, and
Triton's interpreter), which share `tiles_common.py`, and the elementwise functions of `math_functions.py`.
`epilogue.py` computes what follows the loop, `describe.py` the text of `rc.explain`.
"""
