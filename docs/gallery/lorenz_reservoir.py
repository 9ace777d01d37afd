"""
The Lorenz attractor from a reservoir
=====================================

An echo state network sees 4,000 points of the Lorenz system, then runs on its own output. Neither orbit can follow the
other for long, since the system is chaotic; the butterfly is the same.
"""

import torch

import recurra as rc

system = rc.dynamics.lorenz(dt=0.02)
truth = system.simulate(torch.tensor([1.0, 1.0, 20.0], dtype=torch.float64), 7000)[500:]  # (T, 3)
mean, std = truth.mean(0), truth.std(0)
series = ((truth - mean) / std).numpy()

network = rc.EchoStateNetwork(
    units=400, spectral_radius=0.9, input_scaling=0.3, density=0.05, bias=0.5, ridge=1e-6, random_state=2
)
network.fit(series[:4000])
dreamed = torch.as_tensor(network.generate(2500)) * std + mean

rc.inspect.orbits({"Lorenz": truth[4000:6500], "reservoir on its own": dreamed}, title="2,500 steps")

# %%
# The first coordinate of both from the same place: they agree for several turns, then part.
first = {"Lorenz": truth[4000:4600, 0], "reservoir": dreamed[:600, 0]}
rc.inspect.curves(first, torch.arange(600) * 0.02, labels=("time", "x"))
