"""One call empties every registered cache."""

from recurra.engine import caches


def test_clear_caches_empties_every_registered_cache(monkeypatch):
    monkeypatch.setattr(caches, "_CACHES", {})
    plans, kernels = {"a": 1, "b": 2}, {"c": 3}
    caches.register("plans", plans.clear, plans.__len__)
    caches.register("kernels", kernels.clear)
    assert caches.cache_sizes() == {"plans": 2}
    caches.clear_caches()
    assert (plans, kernels) == ({}, {})
    assert caches.cache_sizes() == {"plans": 0}
