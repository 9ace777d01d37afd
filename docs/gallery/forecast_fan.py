"""
A forecast as a fan of intervals
================================

Monthly sales with a season, a trend and noise. The model is asked for three years although it was trained to see one
year ahead: beyond its horizon it continues sampled paths, and the fan widens.
"""

import numpy as np

import recurra as rc

t = np.arange(180)
noise = np.random.default_rng(0).normal(size=180)
sales = 200 + 0.4 * t + 25 * np.sin(2 * np.pi * t / 12) * (1 + t / 300) + 5 * noise + np.cumsum(noise)

model = rc.Forecaster("gru", horizon=12, season=12, hidden_size=16, epochs=15, random_state=0).fit(sales)
model.plot(36)

# %%
# How did it do? Six forecasts of the last year, each from what came before it, by a model that has not seen that year.
early = rc.Forecaster("gru", horizon=6, season=12, hidden_size=16, epochs=15, random_state=0).fit(sales[:144])
early.backtest(sales, windows=6).plot()
