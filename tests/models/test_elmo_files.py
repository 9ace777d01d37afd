"""ELMo's official files: there and back, and files that are not as they should be."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from recurra.interop.allennlp import ElmoFileError, read_options
from recurra.models import ELMo, ScalarMix

h5py = pytest.importorskip("h5py")


def small(**options) -> ELMo:
    return ELMo(4, 6, 2, character_size=3, filters=((1, 4), (2, 5)), longest=9, **options)


def saved(folder: Path, model: ELMo | None = None) -> tuple[Path, Path]:
    places = folder / "options.json", folder / "weights.hdf5"
    (model or small()).save_files(*places)
    return places


def change(path: Path, *keys: str, value: object) -> None:
    """Set one entry of the options, or take it out."""
    content = json.loads(path.read_text())
    part = content
    for key in keys[:-1]:
        part = part[key]
    if value is None:
        del part[keys[-1]]
    else:
        part[keys[-1]] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"residual": False},
        {"highways": 0, "cell_clip": None, "proj_clip": None},
        {"activation": "tanh", "highways": 1, "cell_clip": 2.5},
    ],
    ids=str,
)
def test_there_and_back(tmp_path, options):
    model = small(**options)
    again = ELMo.from_files(*saved(tmp_path, model))
    assert again.options == model.options
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    words = [["a", "bc"], ["d"]]
    for a, b in zip(model.embed(words), again.embed(words), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.shared_data
def test_the_official_file_comes_back_as_it_was(shared_data, tmp_path):
    folder = shared_data / "elmo_fixture"
    _, weights = saved(tmp_path, ELMo.from_files(folder / "options.json", folder / "lm_weights.hdf5"))
    assert json.loads((tmp_path / "options.json").read_text()) == json.loads((folder / "options.json").read_text())
    with h5py.File(folder / "lm_weights.hdf5") as official, h5py.File(weights) as ours:
        names: list[str] = []
        official.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        assert len(names) == 33
        for name in names:
            assert ours[name].dtype == official[name].dtype
            np.testing.assert_array_equal(ours[name][()], official[name][()])


@pytest.mark.parametrize(
    ("key", "array", "message"),
    [
        ("CNN_proj/b_proj", None, "CNN_proj/b_proj: got no such array, expected an array of shape \\(4,\\)"),
        ("char_embed", np.zeros((262, 3), "f4"), "char_embed: got shape \\(262, 3\\), expected shape \\(261, 3\\)"),
        ("CNN/W_cnn_1", np.zeros((2, 3, 5), "f4"), "CNN/W_cnn_1: got shape \\(2, 3, 5\\)"),
        ("RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/B", np.zeros(24, "i4"), "LSTMCell/B: got dtype int32"),
        ("CNN_high_1/W_carry", np.full((9, 9), np.nan, "f4"), "CNN_high_1/W_carry: got numbers that are not finite"),
    ],
)
def test_an_array_that_is_not_as_it_should_be_is_named(tmp_path, key, array, message):
    options, weights = saved(tmp_path)
    with h5py.File(weights, "a") as file:
        del file[key]
        if array is not None:
            file[key] = array
    with pytest.raises(ElmoFileError, match=f"weights.hdf5, .*{message}"):
        ELMo.from_files(options, weights)


def test_a_group_in_the_place_of_an_array(tmp_path):
    options, weights = saved(tmp_path)
    with h5py.File(weights, "a") as file:
        del file["char_embed"]
        file.create_group("char_embed")
    with pytest.raises(ElmoFileError, match="char_embed: got no such array"):
        ELMo.from_files(options, weights)


@pytest.mark.parametrize("content", [b"", b"not an HDF5 file", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_a_file_that_is_not_hdf5(tmp_path, content):
    options, weights = saved(tmp_path)
    weights.write_bytes(content)
    with pytest.raises(ElmoFileError, match=r"weights\.hdf5: got .*, expected an HDF5 file of weights"):
        ELMo.from_files(options, weights)


def test_a_file_that_ends_too_soon(tmp_path):
    options, weights = saved(tmp_path)
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(ElmoFileError, match=r"weights\.hdf5"):
        ELMo.from_files(options, weights)


def test_files_that_are_not_there(tmp_path):
    options, weights = saved(tmp_path)
    with pytest.raises(ElmoFileError, match=r"nothing\.json: got No such file"):
        ELMo.from_files(tmp_path / "nothing.json", weights)
    with pytest.raises(ElmoFileError, match=r"nothing\.hdf5: got no such file"):
        ELMo.from_files(options, tmp_path / "nothing.hdf5")


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("lstm",), None, "lstm: got nothing, expected an object"),
        (("char_cnn", "embedding"), 4, "char_cnn/embedding: got int"),
        (("lstm", "dim"), None, "dim: got None, expected a whole number of at least 1"),
        (("lstm", "projection_dim"), 0, "projection_dim: got 0"),
        (("lstm", "n_layers"), 2.5, "n_layers: got 2.5"),
        (("lstm", "n_layers"), True, "n_layers: got True"),
        (("lstm", "cell_clip"), -3, "cell_clip: got -3, expected a positive number, or null"),
        (("char_cnn", "filters"), [], "filters: got \\[\\]"),
        (("char_cnn", "filters"), [[1, 4], [2]], "filters: got"),
        (("char_cnn", "max_characters_per_token"), 2, "max_characters_per_token: got 2"),
        (("char_cnn", "activation"), "gelu", "activation: got 'gelu', expected 'relu' or 'tanh'"),
    ],
)
def test_an_option_that_is_not_as_it_should_be_is_named(tmp_path, keys, value, message):
    options, _ = saved(tmp_path)
    change(options, *keys, value=value)
    with pytest.raises(ElmoFileError, match=rf"options\.json, {message}"):
        read_options(options)


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[1]", b"3"])
def test_options_that_are_not_an_object_in_json(tmp_path, content):
    (tmp_path / "options.json").write_bytes(content)
    with pytest.raises(ElmoFileError, match=r"options\.json"):
        read_options(tmp_path / "options.json")


def test_options_of_another_model(tmp_path):
    options, weights = saved(tmp_path)
    change(options, "lstm", "dim", value=7)
    with pytest.raises(ElmoFileError, match="Cell0/LSTMCell/W_0: got shape \\(8, 24\\), expected shape \\(8, 28\\)"):
        ELMo.from_files(options, weights)


def test_a_file_that_cannot_be_written_does_not_replace_a_good_one(tmp_path):
    """The weights come first; a place for them that is a folder stops it before anything is touched."""
    options, weights = saved(tmp_path)
    before = options.read_bytes(), weights.read_bytes()
    blocked = tmp_path / "blocked.hdf5"
    blocked.mkdir()
    (blocked / "something").write_text("here")
    with pytest.raises(ElmoFileError, match=r"blocked\.hdf5: got"):
        small(residual=False).save_files(options, blocked)
    assert (options.read_bytes(), weights.read_bytes()) == before
    with pytest.raises(ElmoFileError, match="a path that can be written"):
        small().save_files(tmp_path / "no" / "options.json", tmp_path / "no" / "weights.hdf5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked.hdf5", "options.json", "weights.hdf5"]


def test_a_folder_has_the_mix_too(tmp_path):
    model = ELMo(4, 6, 1, filters=((1, 3), (2, 5)), residual=False, mix=ScalarMix(2, scale=False, layer_norm=True))
    with torch.no_grad():
        model.mix.w.copy_(torch.tensor([0.3, -1.0]))
    model.save(tmp_path)
    again = ELMo.load(tmp_path)
    assert again.settings() == model.settings()
    sentences = [["a", "cat"], ["runs"]]
    for one, other in zip(model.embed(sentences), again.embed(sentences), strict=True):
        assert np.array_equal(one, other)
