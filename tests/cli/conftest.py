"""Runs commands in this process; fitted models of every task."""

from pathlib import Path

import pytest
from problem import files
from typer.testing import CliRunner, Result

from recurra.cli.app import app


class Command:
    """`recurra …` in this process, in its own folder."""

    def __init__(self, folder: Path):
        self.folder, self.runner = folder, CliRunner()

    def __call__(self, *words: object) -> Result:
        return self.runner.invoke(app, [str(word) for word in words], prog_name="recurra")

    def good(self, *words: object) -> Result:
        result = self(*words)
        assert result.exit_code == 0, result.output
        return result


@pytest.fixture
def recurra(tmp_path, monkeypatch) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return Command(tmp_path)


#: task → how to write a file for it, its name, and what else to say to `fit`
KINDS = {
    "classify": (files.recordings, "moves.csv", ()),
    "regress": (files.amounts, "size.csv", ()),
    "forecast": (files.shops, "sales.csv", ("--target", "sold", "--inputs", "price")),
    "tag": (files.sentences, "tags.conll", ()),
    "language": (files.poem, "poem.txt", ("--set", "batch_size=2")),
    "translate": (files.numbers_in_words, "numbers.tsv", ("--task", "translate")),
}


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A folder with a data file and a model of every task: moves.csv and classify, …"""
    from recurra.engine.backend import set_backend

    folder = tmp_path_factory.mktemp("models")
    for task, (write, name, options) in KINDS.items():
        path = write(folder / name)
        words = [
            "fit",
            str(path),
            "-c",
            "gru",
            "--hidden-size",
            "4",
            "--epochs",
            "2",
            "-o",
            str(folder / task),
            *options,
        ]
        with set_backend("reference"):
            result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    return folder
