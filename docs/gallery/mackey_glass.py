"""
Forecast of the Mackey–Glass series
===================================

A reservoir reads 3,000 steps of a delay equation and continues the series for 400 more, each step from its own last
answer. The error grows slowly, since every step adds a little.
"""

import torch

import recurra as rc

task = rc.data.tasks.mackey_glass()
series = task.series(3400, 1, torch.Generator().manual_seed(0)).numpy() - 1.0  # (T, 1)

network = rc.EchoStateNetwork(
    units=600, spectral_radius=1.1, leak=0.8, density=0.02, input_scaling=1.0, ridge=1e-9, random_state=0
)
network.fit(series[:3000])
forecast = network.generate(400)

both = {"Mackey–Glass": series[3000:, 0], "continued by the reservoir": forecast[:, 0]}
rc.inspect.curves(both, title="400 steps ahead", labels=("steps after the last one seen", "x - 1"))

# %%
# The error on a logarithmic axis.
error = abs(forecast - series[3000:])[:, 0].clip(1e-9)
rc.inspect.curves({"absolute error": error}, labels=("steps after the last one seen", ""), log=True)
