"""
A report page
=============

One call writes all measurements of a model to one page that needs nothing from outside: the answers, the health of the
gradients, memory, gates, diagrams, equations. Here is the page itself.
"""

from pathlib import Path

import recurra as rc

(X, y), (X_test, y_test) = (rc.data.japanese_vowels(split) for split in ("train", "test"))
model = rc.SequenceClassifier("gru", hidden_size=24, epochs=15, random_state=0).fit(X, y)

page = rc.report(model, (X_test[:64], y_test[:64]), Path("report.html"), title="Nine speakers, a GRU")
