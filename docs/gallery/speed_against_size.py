"""
Speed against size
==================

How much faster than ``torch.nn`` does recurra train, from small layers to large ones? Times were measured on two CPU
cores by ``benchmarks/speed.py``, which compares both in turn, round after round.
"""

import json
from pathlib import Path

import recurra as rc

results = json.loads(Path("../../benchmarks/results/speed.json").read_text(encoding="utf-8"))
print(f"{results['processor']}, {results['threads']} threads, torch {results['torch']}, {results['when'][:10]}")

# %%
# Above one, recurra is faster. Sizes are sorted by units, then inputs.
rows = [row for row in results["rows"] if row["kind"] == "training" and row["against torch.nn"]]
sizes = sorted({tuple(row["size"]) for row in rows}, key=lambda size: (size[3], size[2], size[1]))
faster = {
    name: [next(r["against torch.nn"] for r in rows if r["cell"] == name and tuple(r["size"]) == s) for s in sizes]
    for name in dict.fromkeys(row["cell"] for row in rows)
}
figure = rc.inspect.curves(
    faster, title="Training, times as fast as torch.nn", labels=("steps × sequences, inputs → units", ""), markers=True
)
labels = [f"{t} × {b}, {d} → {h}" for t, b, d, h in sizes]
figure.update_xaxes(tickvals=list(range(len(sizes))), ticktext=labels)
