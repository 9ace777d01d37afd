"""
Which layer of ELMo does a task use?
====================================

ELMo gives every word a vector from each of its layers, and a task learns how to weigh them. A small ELMo is trained on
sentences of a toy grammar. Then one task asks for the kind of a word, which its letters tell; another one whether the
subject of the sentence is plural, which only the words before it tell.
"""

import random

import torch

import recurra as rc

draw = random.Random(0)
SINGULAR, PLURAL = ["cat", "dog", "bird", "child"], ["cats", "dogs", "birds", "children"]
VERBS, ADVERBS = ["sleeps", "sings", "runs"], ["quietly", "often", "today", "again"]


def sentence() -> tuple[list[str], list[int], list[int]]:
    """Words; their kinds (0 to 3); and at every word whether the subject is plural."""
    plural = draw.random() < 0.5
    verb = draw.choice(VERBS)
    words = ["the", draw.choice(PLURAL if plural else SINGULAR), verb.removesuffix("s") if plural else verb]
    words += draw.choices(ADVERBS, k=3)
    return words, [0, 1, 2, 3, 3, 3], [2, *[int(plural)] * 5]


words, kinds, numbers = zip(*(sentence() for _ in range(300)), strict=True)
torch.manual_seed(0)
elmo = rc.ELMo(16, 32, filters=((1, 8), (2, 16), (3, 16)))
pretraining = rc.models.Pretraining(elmo, words)
rc.train.fit(
    pretraining.model, pretraining.streams(words, 16, 12), loss=rc.models.NextToken(), epochs=8, lr=0.01, progress=False
)
layers = torch.stack([torch.as_tensor(v) for v in elmo.embed(words, layers="all")])  # (sentences, layers, T, 32)


def weights(targets: tuple[list[int], ...]) -> torch.Tensor:
    """The weight of each layer after training a readout of their mix."""
    torch.manual_seed(0)
    mix, readout = rc.ScalarMix(layers.shape[1]), rc.Readout(layers.shape[-1], 4)
    optimizer = torch.optim.Adam([*mix.parameters(), *readout.parameters()], lr=0.03)
    for _ in range(300):
        logits = readout(mix(list(layers.unbind(1))))  # (sentences, T, 4)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(targets).flatten()).backward()
        optimizer.step()
    return mix.s.detach()


# %%
# The kind of a word is in every layer, so the weights stay near where they began; the number of the subject is in the
# second LSTM, which has carried it from the noun to the words behind it.
names = ["letters", "first LSTM", "second LSTM"]
rc.inspect.heatmap(
    torch.stack([weights(kinds), weights(numbers)]), ["kind of the word", "number of the subject"], names,
    title="Weight of every layer",
)  # fmt: skip
