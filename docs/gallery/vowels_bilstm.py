"""
Speech as a bidirectional LSTM sees it
======================================

Nine speakers say the same two vowels. A bidirectional LSTM reads an utterance of twelve coefficients a frame and says
which speaker it is. Which frames decide?
"""

import torch

import recurra as rc

(X, y), (X_test, y_test) = (rc.data.japanese_vowels(split) for split in ("train", "test"))
model = rc.SequenceClassifier("lstm", hidden_size=24, bidirectional=True, epochs=25, random_state=0).fit(X, y)
print(f"{model.score(X_test, y_test):.1%} of {len(X_test)} test utterances")

# %%
# One utterance, frame by frame, as it comes in …
utterance = max(X_test[:60], key=len)
rc.inspect.heatmap(utterance.T, title="The input", labels=("frame", "coefficient"))

# %%
# … as the forward direction and the backward direction remember it …
activity = rc.inspect.gate_activity(model, [utterance])
forward, backward = (each.values[:, 0] for each in activity.activities if each.name == "h")  # (T, units)
rc.inspect.heatmap(torch.cat([forward, backward], 1).T, title="Outputs: 24 forward units, then 24 backward ones")

# %%
# … and what the answer loses if a few frames are hidden.
model.explain(utterance).figure()
