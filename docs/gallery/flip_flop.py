"""
A flip-flop and its slow points
===============================

Three bits are set and cleared by pulses; a GRU learns to remember them. What it learned is geometry: a corner of a cube
for each of the eight memories, an attractor, and a saddle on every edge, where a pulse decides.
"""

import torch
from torch import nn

import recurra as rc

torch.manual_seed(2)
task = rc.data.tasks.flip_flop(length=80, bits=3, rate=0.1)
layer, readout = rc.GRU(3, 24), nn.Linear(24, 3)
adam = torch.optim.Adam([*layer.parameters(), *readout.parameters()], lr=0.02)
falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.05, 900)
for batch in task.batches(24, count=900).epoch(0):
    adam.zero_grad()
    loss = (readout(layer(batch.inputs)[0]) - batch.targets).square().mean()
    loss.backward()
    adam.step()
    falling.step()
print(f"squared error {loss:.4f}")

# %%
# Slow points of the network without input, from states that it visits and some noise. In double precision, a point that
# only drifts slowly can be told from one that stays.
layer.double()
with torch.no_grad():
    orbit = layer(next(task.batches(12, seed=1).epoch(0)).inputs.double())[0]
system = rc.DynamicalSystem.of(layer).frozen(torch.zeros(3, dtype=torch.float64))
starts = orbit.flatten(0, 1)
found = rc.dynamics.slow_points(system, starts + 0.3 * torch.randn_like(starts), speed=1e-9, distance=0.05)
flow = rc.inspect.flow(system, found, orbit)
print(flow.summary())
flow
