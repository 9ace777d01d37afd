"""
Evolution of a cell
===================

Cells can be bred: graphs of gates and products mutate, and those survive that learn little languages. Four
generations of four cells, each trained for forty updates, only begin the search; the best cell so far is drawn below.
"""

import recurra as rc

trial = rc.train.Trial(weights=120, steps=40, batch=8)
evolution = rc.train.Evolution(population=4, trial=trial, seed=0)
evolution.begin()
errors = {language.name: [evolution.best(k).objectives[k]] for k, language in enumerate(evolution.languages)}
for _ in range(4):
    evolution.generation()
    for k, language in enumerate(evolution.languages):
        errors[language.name].append(evolution.best(k).objectives[k])

rc.inspect.curves(errors, title="Error of the best cell", labels=("generation", "error"), markers=True)

# %%
# The founder with a forget gate, and the cell that is best on aⁿbⁿ after these generations.
winner = evolution.best(0).genome.cell_class()
rc.inspect.side_by_side({"LSTM": rc.diagram("lstm"), "winner": rc.diagram(winner(4, 8))})
