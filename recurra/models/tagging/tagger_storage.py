"""A tagger as a folder: `config.json`, with its options and vocabulary, and `model.safetensors`; nothing in it is code.

The folder is written beside the old one and takes its place when it is whole.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from ...cells import registry
from ...errors import InputError
from .features import TokenVectors
from .tagger import Tagger
from .vocabulary import Vocabulary

FORMAT = 1


def save_tagger(tagger: Tagger, folder: str | Path) -> None:
    """Write the tagger; an older one there is replaced, other files are not touched but refused."""
    from ...train.tensorfile import save_tensors, write_json  # a room below this one: how weights lie on disk

    folder = Path(folder)
    strange = [path.name for path in folder.iterdir() if path.name not in FILES] if folder.exists() else []
    if strange:
        raise InputError("folder", f"{folder}, which holds {strange[0]!r}", "a new folder, or that of a tagger")
    config = {
        "format": FORMAT,
        "model": "Tagger",
        "options": {**tagger.options, "cell": _cell_name(tagger.options["cell"])},
        "vocabulary": tagger.vocabulary.to_json(),
    }
    draft, old = folder.with_name(f".{folder.name}.writing"), folder.with_name(f".{folder.name}.old")
    for left in (draft, old):
        shutil.rmtree(left, ignore_errors=True)
    draft.mkdir(parents=True)
    write_json(draft / "config.json", config)
    save_tensors(draft / "model.safetensors", tagger.state_dict())
    if folder.exists():
        os.rename(folder, old)
    os.rename(draft, folder)
    shutil.rmtree(old, ignore_errors=True)


def load_tagger(folder: str | Path, extra_inputs: TokenVectors | None = None) -> Tagger:
    """Read a tagger; one that was trained with extra inputs needs a module of the same kind, whose weights it sets."""
    from ...train.fit_errors import CheckpointError
    from ...train.tensorfile import load_tensors, read_json

    path = Path(folder) / "config.json"
    config: Any = read_json(path)
    if not isinstance(config, dict) or config.get("model") != "Tagger" or config.get("format") != FORMAT:
        raise CheckpointError(path, f"not the config of a tagger in format {FORMAT}")
    try:
        tagger = Tagger(Vocabulary(**config["vocabulary"]), extra_inputs=extra_inputs, **config["options"])
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(path, f"its options are not those of a tagger ({error!r})") from error
    weights, _ = load_tensors(Path(folder) / "model.safetensors", tagger.state_dict())
    tagger.load_state_dict(weights)
    return tagger.eval()


FILES = ("config.json", "model.safetensors")


def _cell_name(cell: Any) -> str:
    names = [name for name, known in registry().items() if name == cell or known is cell]
    if not names:
        raise InputError("cell", getattr(cell, "__name__", cell), "a registered cell, so that a file can name it")
    return names[0]
