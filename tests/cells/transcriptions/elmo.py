"""ELMo once more, in numpy, straight from the arrays of its file: a plain loop over words and layers."""

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Carried = dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def spelled(inner: list[int], longest: int) -> list[int]:
    word = [258, *inner[: longest - 2], 259]
    return word + [260] * (longest - len(word))


def word_vector(characters: list[int], w: Arrays, options: dict[str, Any]) -> np.ndarray:
    squash = np.tanh if options["char_cnn"]["activation"] == "tanh" else lambda a: np.maximum(a, 0)
    letters = w["char_embed"][characters]
    found = []
    for k, (width, _) in enumerate(options["char_cnn"]["filters"]):
        windows = [letters[p : p + width] for p in range(len(letters) - width + 1)]
        scores = [np.einsum("wc,wcn->n", part, w[f"CNN/W_cnn_{k}"][0]) + w[f"CNN/b_cnn_{k}"] for part in windows]
        found.append(squash(np.max(scores, axis=0)))
    x = np.concatenate(found)
    for k in range(options["char_cnn"]["n_highway"]):
        name = f"CNN_high_{k}"
        gate = sigmoid(x @ w[f"{name}/W_carry"] + w[f"{name}/b_carry"])
        x = gate * np.maximum(x @ w[f"{name}/W_transform"] + w[f"{name}/b_transform"], 0) + (1 - gate) * x
    return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"] if "CNN_proj/W_proj" in w else x


def read(xs: list[np.ndarray], way: int, w: Arrays, options: dict[str, Any], carried: Carried) -> list[np.ndarray]:
    """Layers (n, p) of one direction, in the order it reads; `carried` holds (r, c) before and after."""
    lstm = options["lstm"]
    below, layers = np.stack(xs), []
    for number in range(lstm["n_layers"]):
        name = f"RNN_{way}/RNN/MultiRNNCell/Cell{number}/LSTMCell"
        zeros = np.zeros(lstm["projection_dim"]), np.zeros(lstm["dim"])
        r, c = carried.get((way, number), zeros)
        outputs = []
        for x in below:
            i, j, f, o = np.split(np.concatenate([x, r]) @ w[f"{name}/W_0"] + w[f"{name}/B"], 4)
            c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -lstm["cell_clip"], lstm["cell_clip"])
            r = np.clip((sigmoid(o) * np.tanh(c)) @ w[f"{name}/W_P_0"], -lstm["proj_clip"], lstm["proj_clip"])
            outputs.append(r)
        carried[way, number] = r, c
        y = np.stack(outputs)
        below = y + below if lstm["use_skip_connections"] and number else y
        layers.append(below)
    return layers


def elmo_layers(sentence: list[str], w: Arrays, options: dict[str, Any], carried: Carried | None = None) -> np.ndarray:
    """(L + 1, n, 2p) of a sentence's words."""
    carried = {} if carried is None else carried
    longest = options["char_cnn"]["max_characters_per_token"]
    words = [spelled([256], longest), *(spelled(list(t.encode()), longest) for t in sentence), spelled([257], longest)]
    xs = [word_vector(word, w, options) for word in words]
    onward = read(xs, 0, w, options, carried)
    back = [layer[::-1] for layer in read(xs[::-1], 1, w, options, carried)]
    layers = [
        np.concatenate(pair, axis=-1) for pair in zip([np.stack(xs), *onward], [np.stack(xs), *back], strict=True)
    ]
    return np.stack(layers)[:, 1:-1]
