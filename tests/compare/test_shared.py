"""The shared work queue: every item claimed once, none lost."""

import time

import pytest

from recurra.compare import shared_run
from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import RunFolder
from recurra.compare.shared_run import SharedWorkQueue, open_storage
from recurra.errors import InputError

JOURNAL = pytest.mark.parametrize("machine", ["journal:{}"], ids=["journal"], indirect=True)  # the fastest
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


def test_a_timed_out_item_is_requeued_and_a_late_result_ignored(machine, monkeypatch):
    lost, here = machine("lost"), machine("here")
    first = lost.claim()
    for item in WANTED[1:]:
        assert here.claim() == item
        here.finish(item, row(item))
    assert here.claim() is None
    look(here)
    assert here.claim() is None  # it is not silent for long
    monkeypatch.setattr(shared_run, "TIMEOUT_SECONDS", 0.01)
    time.sleep(0.02)
    look(here)
    assert here.claim() == first
    here.finish(first, row(first))
    lost.finish(first, {**row(first), "score": 0.1})
    lost.last_heartbeat = 0.0
    for queue in (here, lost):
        look(queue)
        assert queue.is_complete()
        assert queue.rows()[0]["score"] == 0.5


@JOURNAL
def test_clocks_of_machines_are_not_compared(machine, monkeypatch):
    there, here = machine("there"), machine("here")
    with monkeypatch.context() as slow:
        slow.setattr(time, "time", lambda: 1000.0)  # a machine whose clock is years behind
        first = there.claim()
    assert [here.claim() for _ in WANTED] == [*WANTED[1:], None]
    look(here)
    assert here.claim() is None
    assert first not in here.running


@JOURNAL
def test_machines_with_one_name_and_path_are_two(machine, tmp_path, monkeypatch):
    """Containers and cloned machines: another folder, although its name is the same."""
    there = machine("here")
    first = there.claim()
    (tmp_path / "here").rename(tmp_path / "away")
    assert machine("here").claim() == WANTED[1]
    assert first == WANTED[0]


@JOURNAL
def test_a_machine_that_dies_between_claim_and_heartbeat_is_noticed(machine, monkeypatch):
    machine("lost").study.ask()
    here = machine("here")
    assert [here.claim() for _ in WANTED] == [*WANTED[1:], None]
    monkeypatch.setattr(shared_run, "TIMEOUT_SECONDS", 0.01)
    look(here)
    time.sleep(0.02)
    look(here)
    assert here.claim() == WANTED[0]


@JOURNAL
def test_an_item_that_two_machines_requeue_runs_once(machine):
    """Both find it released, at the same time; one of the two trials is enough."""
    here, there = machine("here"), machine("there")
    first = here.claim()
    here.storage.set_trial_state_values(here.running.pop(first), here.optuna.trial.TrialState.FAIL)
    for queue in (here, there):
        queue._requeue(first, None)
    claims = [queue.claim() for queue in (here, there, here, there)]
    assert sorted(claims, key=WANTED.index) == WANTED
    here.running.clear()
    there.finish(claims[1], row(claims[1]))
    assert machine("third").claim() is None


@JOURNAL
def test_a_result_that_came_meanwhile_is_not_computed_again(machine):
    here, there = machine("here"), machine("there")
    first = here.claim()
    here.finish(first, row(first))
    there._requeue(first, None)
    assert there.claim() == WANTED[1]
    assert there.results == {first: row(first)}


@JOURNAL
def test_an_item_whose_worker_was_killed_runs_again_but_not_forever(machine):
    here = machine("here")
    died = {**row(WANTED[0]), "error": "its process ended with exit code -9", "transient": True}
    for _ in range(2):
        assert here.claim() == WANTED[0]
        here.finish(WANTED[0], died)
        assert not here.results
    assert here.claim() == WANTED[0]
    here.finish(WANTED[0], died)
    assert here.results == {WANTED[0]: died}
    assert here.claim() == WANTED[1]


def test_another_list_of_items_is_another_study(machine, tmp_path):
    here = machine("here")
    here.claim()
    storage = open_storage(f"sqlite:///{tmp_path / 'other.db'}")
    assert SharedWorkQueue(RunFolder(tmp_path / "x"), WANTED[::-1], storage, "run").claim() == WANTED[-1]


@pytest.mark.parametrize("url", ["nonsense", "nodialect://x", "sqlite:////no/such/folder/x.db"])
def test_an_invalid_storage_url(url):
    with pytest.raises(InputError, match="storage"):
        open_storage(url)
