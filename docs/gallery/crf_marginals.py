"""
What a tagger believes about every word
=======================================

A conditional random field scores whole sequences of tags. Its marginals say how probable each tag of each word is,
given all words. “May” and “Rose” are names or ordinary words: the words around them decide.
"""

import recurra as rc

X = [
    "Rose met May in Paris .".split(),
    "May saw Rose in Rome .".split(),
    "Rose lives in May Street .".split(),
    "The rose may grow in Paris .".split(),
    "In May the rose blooms .".split(),
    "In May Rose saw Paris .".split(),
    "It may rain in Rome in May .".split(),
]
y = [
    "B-PER O B-PER O B-LOC O".split(),
    "B-PER O B-PER O B-LOC O".split(),
    "B-PER O O B-LOC I-LOC O".split(),
    "O O O O O B-LOC O".split(),
    "O B-DATE O O O O".split(),
    "O B-DATE B-PER O B-LOC O".split(),
    "O O O O B-LOC O B-DATE O".split(),
]

model = rc.SequenceTagger("lstm", hidden_size=24, epochs=40, batch_size=4, dropout=0.3, random_state=0).fit(
    X * 4, y * 4
)
sentence = "In May Rose met May in May Street .".split()
print(*model.predict([sentence])[0])

# %%
# One column a word, one row a tag.
rc.inspect.heatmap(
    model.predict_proba([sentence])[0].T, model.classes_, sentence, title="Probability of every tag, given the sentence"
)
