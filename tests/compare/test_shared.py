"""Machines that share a run: every fit claimed once, none lost."""

import time

import pytest

from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import RunFolder
from recurra.compare.shared_run import TIMEOUT_SECONDS, SharedWorkQueue, open_storage
from recurra.errors import InputError

WANTED = [WorkItem(name, seed) for seed in range(2) for name in ("lstm", "gru")]


@pytest.fixture(params=["sqlite:///{}", "journal:{}"], ids=["sqlite", "journal"])
def machine(request, tmp_path):
    """Makes a machine with a folder of its own; machines of the same name are the same one, started again."""

    def make(name: str) -> SharedWorkQueue:
        storage = open_storage(request.param.format(tmp_path / "storage"))
        return SharedWorkQueue(RunFolder(tmp_path / name), WANTED, storage, "run")

    return make


def row(item: WorkItem) -> dict:
    return {"name": item.name, "kind": item.kind, "seed": item.seed, "score": 0.5}


def look(queue: SharedWorkQueue) -> None:
    queue.last_poll = 0.0
    queue.refresh()


def test_every_fit_is_claimed_once_and_heard_of_everywhere(machine):
    here, there = machine("here"), machine("there")
    claims = [here.claim(), there.claim(), there.claim(), here.claim()]
    assert claims == WANTED
    assert here.claim() is None
    assert there.claim() is None
    for queue, item in zip((here, there, there, here), claims, strict=True):
        queue.finish(item, row(item))
    look(here)
    look(there)
    assert here.is_complete()
    assert there.is_complete()
    assert here.rows() == there.rows() == [row(item) for item in WANTED]
    assert all(there.folder.row_path(item).exists() for item in WANTED)
    assert machine("third").is_complete()


def test_what_is_let_go_is_taken_by_another(machine):
    here, there = machine("here"), machine("there")
    first = here.claim()
    here.release(first)
    assert [there.claim() for _ in WANTED].count(first) == 1
    assert there.claim() is None


def test_a_machine_that_comes_back_goes_on_with_its_own(machine):
    first = machine("here").claim()
    assert machine("there").claim() == WANTED[1]
    assert machine("here").claim() == first


def test_a_silent_machine_is_replaced_and_its_late_word_does_no_harm(machine):
    lost, here = machine("lost"), machine("here")
    first = lost.claim()
    for item in WANTED[1:]:
        assert here.claim() == item
        here.finish(item, row(item))
    assert here.claim() is None
    look(here)
    assert here.claim() is None  # it is not silent for long
    lost.storage.set_trial_user_attr(lost.running[first], "beat", time.time() - TIMEOUT_SECONDS - 1)
    look(here)
    assert here.claim() == first
    here.finish(first, row(first))
    lost.finish(first, {**row(first), "score": 0.1})
    assert here.is_complete()
    look(here)
    assert here.rows()[0]["score"] == 0.5


def test_other_lists_are_other_runs(machine, tmp_path):
    here = machine("here")
    here.claim()
    storage = open_storage(f"sqlite:///{tmp_path / 'other.db'}")
    assert SharedWorkQueue(RunFolder(tmp_path / "x"), WANTED[::-1], storage, "run").claim() == WANTED[-1]


@pytest.mark.parametrize("url", ["nonsense", "nodialect://x", "sqlite:////no/such/folder/x.db"])
def test_a_url_that_leads_nowhere(url):
    with pytest.raises(InputError, match="storage"):
        open_storage(url)
