"""A language model as a folder: `config.json` and `model.safetensors`, no code in either."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, OptionError
from .vocabulary import vocabulary_from

if TYPE_CHECKING:
    from .model import LanguageModel

KIND = "language_model"


class ModelFileError(InputError):
    """A stored model is not as it should be; the message names the file."""


def save(model: "LanguageModel", folder: str | Path) -> None:
    """Both files, each put in its place only when it is whole."""
    from safetensors.torch import save_model

    unknown = [name for name, value in model.settings.items() if not _plain(value)]
    if unknown:
        raise OptionError("save", f"a model with {', '.join(unknown)} of its own", "one that names alone describe")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"kind": KIND, "vocabulary": model.vocabulary.to_config(), "settings": model.settings}
    drafts = folder / ".model.safetensors", folder / ".config.json"
    save_model(model, str(drafts[0]))
    drafts[1].write_text(json.dumps(config, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for draft in drafts:
        os.replace(draft, folder / draft.name[1:])


def load(cls: "type[LanguageModel]", folder: str | Path) -> "LanguageModel":
    """The model that `save` stored."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    config, weights = Path(folder) / "config.json", Path(folder) / "model.safetensors"
    content = _content(config)
    model = cls(vocabulary_from(content["vocabulary"]), **content["settings"])
    try:
        missing, unexpected = load_model(model, str(weights), strict=False)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise ModelFileError(str(weights), str(error).splitlines()[0], "the weights of this model") from error
    if missing or unexpected:
        got = ", ".join([*(f"no {name}" for name in missing), *unexpected])
        raise ModelFileError(str(weights), got, "the weights of this model")
    return model.eval()


def _content(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelFileError(str(path), error.strerror or str(error), "the config.json of a language model") from error
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelFileError(str(path), str(error), "JSON, in UTF-8") from error
    parts = ("vocabulary", "settings")
    whole = isinstance(content, dict) and content.get("kind") == KIND
    if not whole or not all(isinstance(content.get(part), dict) for part in parts):
        raise ModelFileError(str(path), "JSON of something else", "the config.json of a language model")
    return content


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float | bool)
