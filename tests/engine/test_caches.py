"""One call empties every cache without changing results; plans of cells that are gone are freed."""

import gc
import weakref

import torch

import recurra as rc
from recurra.engine import caches, executors
from recurra.engine.cell_cache import cache_of


def test_clear_caches_empties_every_registered_cache(monkeypatch):
    monkeypatch.setattr(caches, "_CACHES", {})
    plans, kernels = {"a": 1, "b": 2}, {"c": 3}
    caches.register("plans", plans.clear, plans.__len__)
    caches.register("kernels", kernels.clear)
    assert caches.cache_sizes() == {"plans": 2}
    caches.clear_caches()
    assert (plans, kernels) == ({}, {})
    assert caches.cache_sizes() == {"plans": 0}


def test_executors_of_cells_that_are_gone_are_let_go_of(monkeypatch):
    monkeypatch.setattr(executors, "RECENT", 1)
    monkeypatch.setattr(executors, "_alive", weakref.WeakValueDictionary())  # graphs of torch.compile keep theirs
    layer, x = rc.layer("gru", 3, 4, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)
    layer(x)[0].sum().backward()
    found = [weakref.ref(one) for one in cache_of(layer.cell_list[0]).executors.values()]
    assert found
    del layer
    rc.layer("rnn", 3, 4, dtype=torch.float64)(x)  # takes the one place among the recent ones
    gc.collect()
    assert all(one() is None for one in found)


def test_clearing_all_caches_changes_no_result():
    layer, x = rc.layer("lstm", 3, 4, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)
    lengths = torch.tensor([5, 3])
    before = layer(x, lengths=lengths)[0]
    rc.clear_caches()
    assert torch.equal(layer(x, lengths=lengths)[0], before)


def test_backward_works_though_caches_were_cleared_after_forward():
    layer, x = rc.layer("lstm", 3, 4, dtype=torch.float64), torch.randn(5, 2, 3, dtype=torch.float64)
    total = layer(x)[0].sum()
    wanted = torch.autograd.grad(total, list(layer.parameters()), retain_graph=True)
    rc.clear_caches()
    gc.collect()
    found = torch.autograd.grad(total, list(layer.parameters()))
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours, theirs)
