"""
Gates over a Reber string
=========================

An LSTM learns to predict the next symbol of embedded Reber strings. The second symbol, T or P, comes back at the last
but one place, so one unit must carry it through all that stands between.
"""

import torch

import recurra as rc

torch.manual_seed(1)
task = rc.data.tasks.embedded_reber()
model = rc.train.Predictor(rc.LSTM(task.input_size, 12), task.output_size)
rc.train.fit(model, task.batches(32, count=250, seed=0), lr=0.02, epochs=1, progress=False)

test = next(task.batches(200, 1, seed=1).epoch(0))
with torch.no_grad():
    print(f"{task.score(model(test.inputs, lengths=test.lengths)[0], test):.1%} of the repeated symbols are right")

# %%
# Two strings that differ in their second symbol, read step by step. ``gate_activity`` has every state and every named
# value of the step; here the memory ``c`` of both strings. Look for the row that keeps its colour.
strings = task.sequences(40, seed=3)
activity = rc.inspect.gate_activity(model, strings, sequences=40)
second = [int(example.inputs[1].argmax()) for example in strings]
long = max((k for k in range(40) if second[k] == task.symbols.index("T")), key=lambda k: int(strings.lengths[k]))
spelled = [task.symbols[int(step.argmax())] for step in strings[long].inputs]

memory = activity["c"].values[: len(spelled), long].T  # (units, T)
rc.inspect.heatmap(memory, columns=spelled, title="Memory cells over one string", labels=("symbol read", "unit"))

# %%
# And its forget gate: near one it keeps, near zero it erases.
rc.inspect.heatmap(activity["f"].values[: len(spelled), long].T, columns=spelled, title="Forget gates")
