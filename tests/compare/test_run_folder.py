"""The run folder and its work queue."""

import json

import pytest

from recurra.compare.plan import RunConfig, WorkItem
from recurra.compare.run_errors import RunFolderError
from recurra.compare.run_folder import RunFolder, WorkQueue, write_json

RULES = RunConfig({"source": "japanese_vowels"}, epochs=2)
ITEMS = [WorkItem("linear", 0, "baseline"), WorkItem("lstm", 0), WorkItem("lstm", 1)]


def row(item):
    return {"name": item.name, "kind": item.kind, "seed": item.seed, "score": 0.5}


def test_finished_items_are_not_repeated(tmp_path):
    queue = WorkQueue(RunFolder(tmp_path), ITEMS)
    first, second = queue.claim(), queue.claim()
    assert (first, second) == (ITEMS[0], ITEMS[1])
    queue.finish(first, row(first))
    queue.release(second)
    assert queue.claim() == second
    again = WorkQueue(RunFolder(tmp_path), ITEMS)
    assert again.rows() == [row(first)]
    assert [again.claim(), again.claim(), again.claim()] == [ITEMS[1], ITEMS[2], None]
    assert not again.is_complete()


def test_a_died_worker_is_not_recorded(tmp_path):
    queue = WorkQueue(RunFolder(tmp_path), ITEMS[:1])
    queue.finish(queue.claim(), {**row(ITEMS[0]), "transient": True})
    assert queue.is_complete()
    assert not WorkQueue(RunFolder(tmp_path), ITEMS[:1]).is_complete()


def test_a_folder_has_one_configuration(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.prepare(RULES)
    folder.prepare(RULES)
    with pytest.raises(RunFolderError, match=r"epochs 2.*epochs 3"):
        folder.prepare(RunConfig({"source": "japanese_vowels"}, epochs=3))
    write_json(folder.row_path(ITEMS[0]), row(ITEMS[0]))
    folder.prepare(RunConfig({"source": "japanese_vowels"}, epochs=3), fresh=True)
    assert not folder.row_path(ITEMS[0]).exists()


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(RunFolderError, match="other files"):
            RunFolder(tmp_path).prepare(RULES, fresh)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_one_run_at_a_time(tmp_path):
    with (
        RunFolder(tmp_path).lock(),
        pytest.raises(RunFolderError, match="is running"),
        RunFolder(tmp_path).lock(),
    ):
        raise AssertionError("both lead")
    with RunFolder(tmp_path).lock():
        pass


def test_a_damaged_row_is_named(tmp_path):
    folder = RunFolder(tmp_path)
    write_json(folder.row_path(ITEMS[1]), row(ITEMS[1]))
    assert json.loads(folder.row_path(ITEMS[1]).read_text())["name"] == "lstm"
    folder.row_path(ITEMS[1]).write_text('{"name": "ls')
    with pytest.raises(RunFolderError, match="cell_lstm_0"):
        WorkQueue(folder, ITEMS)
