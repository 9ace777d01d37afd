"""Language models on disk: there and back, and folders that hold something else."""

import json

import pytest
import torch

from recurra.errors import ModelFileError, OptionError
from recurra.models.language import Characters, Embedding, LanguageModel, Subwords, Words

TEXT = "the cat sat\non the mat\n"


@pytest.mark.parametrize(
    ("vocabulary", "options"),
    [
        (Characters.from_text(TEXT), {"cell": "gru", "num_layers": 2, "residual": True}),
        (Words.from_text(TEXT), {"output": "tied", "direction": "both", "embedding_size": 5}),
        (Subwords.train(TEXT, size=270), {"output": "sampled", "direction": "backward", "dropout": 0.3}),
        (
            Characters.from_text(TEXT),
            {"cell": "projection_lstm", "proj_size": 16, "cell_clip": 2.0, "output": "adaptive"},
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else type(value).__name__,
)
def test_there_and_back(tmp_path, vocabulary, options):
    model = LanguageModel(vocabulary, 16, **options)
    model.save(tmp_path / "model")
    again = LanguageModel.load(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    assert not again.training
    assert again.settings == model.settings
    assert again.measure(TEXT) == model.measure(TEXT)
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in model.parameters())


def test_a_model_with_parts_of_its_own_says_so(tmp_path):
    model = LanguageModel(Words.from_text(TEXT), 4, encoder=Embedding(20, 4))
    with pytest.raises(OptionError, match="save: got a model with its own encoder"):
        model.save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_folders_that_hold_something_else(tmp_path):
    with pytest.raises(ModelFileError, match=r"config\.json: got no such file"):
        LanguageModel.load(tmp_path)
    LanguageModel(Words.from_text(TEXT), 4).save(tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    good, content = config.read_text(), weights.read_bytes()
    for bad in ("{", "[]", '{"kind": "tagger"}', '{"kind": "language_model", "vocabulary": 3, "settings": {}}'):
        config.write_text(bad)
        with pytest.raises(ModelFileError, match=r"config\.json"):
            LanguageModel.load(tmp_path)
    config.write_text(good)
    weights.write_bytes(content[:100])
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        LanguageModel.load(tmp_path)
    weights.write_bytes(content)
    changed = json.loads(good)
    changed["settings"]["hidden_size"] = 5
    config.write_text(json.dumps(changed))
    with pytest.raises(ModelFileError, match="changed after it was saved"):
        LanguageModel.load(tmp_path)
    del changed["checksum"]
    config.write_text(json.dumps(changed))
    with pytest.raises(ModelFileError, match=r"model\.safetensors"):
        LanguageModel.load(tmp_path)
    changed["settings"].update(hidden_size=4, num_layers=2)
    config.write_text(json.dumps(changed))
    with pytest.raises(ModelFileError, match=r"model\.safetensors: got no tensor 'ways\.0\.layers\.1"):
        LanguageModel.load(tmp_path)
    config.write_text(good)
    assert isinstance(LanguageModel.load(tmp_path).forward(torch.zeros(2, 1, dtype=torch.int64))[0], torch.Tensor)
