"""The shared work queue: every item claimed once, none lost."""

import time

import pytest

from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import RunFolder
from recurra.compare.shared_run import TIMEOUT_SECONDS, SharedWorkQueue, open_storage
from recurra.errors import InputError

WANTED = [WorkItem(name, seed) for seed in range(2) for name in ("lstm", "gru")]


@pytest.fixture(params=["sqlite:///{}", "journal:{}"], ids=["sqlite", "journal"])
def machine(request, tmp_path):
    """Makes the queue of a machine; the same name again is that machine restarted."""

    def make(name: str) -> SharedWorkQueue:
        storage = open_storage(request.param.format(tmp_path / "storage"))
        return SharedWorkQueue(RunFolder(tmp_path / name), WANTED, storage, "run")

    return make


def row(item: WorkItem) -> dict:
    return {"name": item.name, "kind": item.kind, "seed": item.seed, "score": 0.5}


def look(queue: SharedWorkQueue) -> None:
    queue.last_poll = 0.0
    queue.refresh()


def test_every_item_is_claimed_once_and_shared(machine):
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


def test_a_released_item_is_claimed_by_another_machine(machine):
    here, there = machine("here"), machine("there")
    first = here.claim()
    here.release(first)
    assert [there.claim() for _ in WANTED].count(first) == 1
    assert there.claim() is None


def test_a_restarted_machine_claims_its_own_items(machine):
    first = machine("here").claim()
    assert machine("there").claim() == WANTED[1]
    assert machine("here").claim() == first


def test_a_timed_out_item_is_requeued_and_a_late_result_ignored(machine):
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


def test_another_list_of_items_is_another_study(machine, tmp_path):
    here = machine("here")
    here.claim()
    storage = open_storage(f"sqlite:///{tmp_path / 'other.db'}")
    assert SharedWorkQueue(RunFolder(tmp_path / "x"), WANTED[::-1], storage, "run").claim() == WANTED[-1]


@pytest.mark.parametrize("url", ["nonsense", "nodialect://x", "sqlite:////no/such/folder/x.db"])
def test_an_invalid_storage_url(url):
    with pytest.raises(InputError, match="storage"):
        open_storage(url)
