"""Cells whose states are affine in themselves, in chunks of time: all chunks run at once.

`split.py` divides a program into what torch computes for all steps before, what kernels compute, and what follows.
`shape.py` chooses the chunks, `codegen.py` writes the kernels, `run.py` runs all of it. A first kernel finds what each
chunk does to a state, `P ⊙ h + q`; a second one goes through the chunks and finds the state before each (that of
`join_chunks.py` takes many chunks at once, where states read themselves alone); the last one
runs the equations of all chunks from there, and stores the results. Where chunks are not needed it runs alone.
"""
