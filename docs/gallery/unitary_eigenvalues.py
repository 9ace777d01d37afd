"""
Eigenvalues of a recurrent matrix in training
=============================================

An orthogonal matrix has all its eigenvalues on the unit circle, and a parametrisation keeps them there while they are
trained: no direction of the state grows or dies. The matrix of a plain RNN goes where the gradient takes it.
"""

import copy

import torch

import recurra as rc

task = rc.data.tasks.copy_memory(lag=20, items=4, alphabet=4)


def trained(name: str) -> rc.inspect.WeightSpectrum:
    """The spectrum of a layer before and after 300 updates."""
    torch.manual_seed(0)
    model = rc.train.Predictor(rc.layer(name, task.input_size, 40), task.output_size)
    fresh = copy.deepcopy(model)
    result = rc.train.fit(model, task.batches(32, count=300), lr=5e-3, epochs=1, clip=1.0, progress=False)
    print(f"{name}: loss {result.history[-1]['loss']:.3f}")
    return rc.inspect.weight_spectrum(model, before=fresh)


# %%
# Orthogonal: before and after, every eigenvalue is on the circle.
trained("orthogonal_rnn").figure()

# %%
# Plain: eigenvalues inside forget, those outside may explode.
trained("rnn").figure()
