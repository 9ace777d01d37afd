"""The list of the engine's module-level caches, and one call that empties them all."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Cache:
    """How to empty a cache, and how many entries it holds (None: not counted)."""

    clear: Callable[[], None]
    size: Callable[[], int] | None = None


_CACHES: dict[str, Cache] = {}


def register(name: str, clear: Callable[[], None], size: Callable[[], int] | None = None) -> None:
    """List a cache under `name`; call it where the cache is created."""
    _CACHES[name] = Cache(clear, size)


def cache_sizes() -> dict[str, int]:
    """Name → number of entries, of the caches that count theirs."""
    return {name: cache.size() for name, cache in _CACHES.items() if cache.size is not None}


def clear_caches() -> None:
    """Empty every cache that recurra holds in memory: traced steps, plans, kernels, packed weights.

    The next call builds what it needs again; compiled libraries stay on disk. Useful in a process that makes many cell
    classes, and in tests.

    **Example**

        >>> import recurra as rc
        >>> rc.clear_caches()
    """
    for cache in list(_CACHES.values()):
        cache.clear()
