"""
Where an encoder–decoder looks
==============================

A sequence-to-sequence model learns to rewrite dates: ``7 march 2024`` becomes ``2024-03-07``. At every letter it
writes, its attention is on the part of the source that the letter comes from.
"""

import random

import recurra as rc

MONTHS = "january february march april may june july august september october november december".split()
draw = random.Random(0)
dates = [(draw.randint(1, 28), draw.randint(1, 12), draw.randint(1950, 2049)) for _ in range(1200)]
X = [f"{day} {MONTHS[month - 1]} {year}" for day, month, year in dates]
y = [f"{year}-{month:02}-{day:02}" for day, month, year in dates]

model = rc.SequenceToSequence("gru", hidden_size=48, embedding_size=24, epochs=12, lr=0.01, random_state=0)
model.fit(X[:1000], y[:1000])
print(f"{model.score(X[1000:], y[1000:]):.1%} of 200 new dates are right")

# %%
# One row a letter that is written, one column a letter that is read. Month names are read where they differ.
source = "14 september 1987"
written = model.predict([source])[0]
symbols = model.source_symbols_.encode(source)[:, None], model.target_symbols_.encode(written)[:, None]
weights = model.model_.attention_weights(*symbols)[: len(written), 0]  # (written, read)
rc.inspect.heatmap(weights, list(written), list(source), title="Attention", labels=("read", "written"))
