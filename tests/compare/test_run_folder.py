"""The run folder: what is kept, whose it is."""

import json

import pytest

from recurra.compare.plan import Entrant, Rules
from recurra.compare.run_errors import RunFolderError
from recurra.compare.run_folder import Folder, Ledger, write_json

RULES = Rules({"source": "japanese_vowels"}, epochs=2)
ENTRANTS = [Entrant("linear", 0, "baseline"), Entrant("lstm", 0), Entrant("lstm", 1)]


def row(entrant):
    return {"name": entrant.name, "kind": entrant.kind, "seed": entrant.seed, "score": 0.5}


def test_what_is_finished_is_found_again(tmp_path):
    ledger = Ledger(Folder(tmp_path), ENTRANTS)
    first, second = ledger.claim(), ledger.claim()
    assert (first, second) == (ENTRANTS[0], ENTRANTS[1])
    ledger.finish(first, row(first))
    ledger.release(second)
    assert ledger.claim() == second
    again = Ledger(Folder(tmp_path), ENTRANTS)
    assert again.rows() == [row(first)]
    assert [again.claim(), again.claim(), again.claim()] == [ENTRANTS[1], ENTRANTS[2], None]
    assert not again.complete()


def test_the_death_of_a_process_is_not_kept(tmp_path):
    ledger = Ledger(Folder(tmp_path), ENTRANTS[:1])
    ledger.finish(ledger.claim(), {**row(ENTRANTS[0]), "passing": True})
    assert ledger.complete()
    assert not Ledger(Folder(tmp_path), ENTRANTS[:1]).complete()


def test_a_folder_belongs_to_its_rules(tmp_path):
    folder = Folder(tmp_path / "run")
    folder.begin(RULES)
    folder.begin(RULES)
    with pytest.raises(RunFolderError, match=r"epochs 2.*epochs 3"):
        folder.begin(Rules({"source": "japanese_vowels"}, epochs=3))
    write_json(folder.row(ENTRANTS[0]), row(ENTRANTS[0]))
    folder.begin(Rules({"source": "japanese_vowels"}, epochs=3), fresh=True)
    assert not folder.row(ENTRANTS[0]).exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(RunFolderError, match="other files"):
            Folder(tmp_path).begin(RULES, fresh)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_one_leader_at_a_time(tmp_path):
    with (
        Folder(tmp_path).locked(),
        pytest.raises(RunFolderError, match="is running"),
        Folder(tmp_path).locked(),
    ):
        raise AssertionError("both lead")
    with Folder(tmp_path).locked():
        pass


def test_a_damaged_row_is_named(tmp_path):
    folder = Folder(tmp_path)
    write_json(folder.row(ENTRANTS[1]), row(ENTRANTS[1]))
    assert json.loads(folder.row(ENTRANTS[1]).read_text())["name"] == "lstm"
    folder.row(ENTRANTS[1]).write_text('{"name": "ls')
    with pytest.raises(RunFolderError, match="cell_lstm_0"):
        Ledger(folder, ENTRANTS)
