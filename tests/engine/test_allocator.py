"""The buffer pool: memory is reused only after its last tensor is freed."""

import gc
import os
import sys
from collections import OrderedDict

import pytest
import torch

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.cpu import allocator

LARGE = (allocator.SMALL // 4 + 100,)  # of 32-bit numbers: more than the system's allocator is asked for


def region(tensor: torch.Tensor) -> int:
    """Which pages a tensor lies in, whatever its place there."""
    return tensor.untyped_storage().data_ptr() // 4096


def test_memory_comes_back_when_its_last_holder_lets_go():
    gc.collect()  # no other memory returns to the pool in between
    first = allocator.empty(LARGE, torch.float32)
    where, view = region(first), first[5:]
    del first
    second = allocator.empty(LARGE, torch.float32)
    assert region(second) != where  # a view still holds it
    del view
    third = allocator.empty(LARGE, torch.float32)
    assert region(third) == where


def test_tensors_at_the_same_time_do_not_overlap():
    tensors = [allocator.empty(LARGE, torch.float32).fill_(i) for i in range(5)]
    assert all((tensor == i).all() for i, tensor in enumerate(tensors))


@pytest.mark.parametrize("shape", [(3, 5), (700, 1000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_an_ordinary_tensor(shape: tuple[int, int], dtype: torch.dtype):
    tensor = allocator.empty(shape, dtype)
    assert tensor.shape == shape
    assert tensor.dtype == dtype
    assert tensor.is_contiguous()
    assert not tensor._is_view()
    assert tensor.data_ptr() % 64 == 0
    assert not allocator.zeros(shape, dtype).any()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch):
    """An empty one."""
    monkeypatch.setattr(allocator, "_free", OrderedDict())
    monkeypatch.setattr(allocator, "_state", {"bytes": 0, "process": os.getpid()})
    return allocator._free


def kept(pool: OrderedDict) -> list[int]:
    """How many regions of each size lie in a pool."""
    return [len(shelf) for shelf in pool.values()]


def test_no_more_than_the_limit_is_kept(pool: OrderedDict, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        allocator, "LIMIT", 3 * allocator._rounded(4 * LARGE[0] + allocator.OFFSETS * allocator.OFFSET_STEP)
    )
    tensors = [allocator.empty(LARGE, torch.float32) for _ in range(6)]
    del tensors
    assert kept(pool) == [3]
    assert allocator._state["bytes"] == allocator.LIMIT
    other = allocator.empty((2 * LARGE[0],), torch.float32)  # takes the place of two that were longest unused
    assert kept(pool) == [1, 0]
    del other
    assert kept(pool) == [1, 1]


def test_no_line_of_python_runs_when_memory_comes_back(pool: OrderedDict):
    """An interrupt that arrives there would be printed and forgotten."""
    tensor, called = allocator.empty(LARGE, torch.float32), []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del tensor
    finally:
        sys.setprofile(None)
    assert kept(pool) == [1]
    assert called == []


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_takes_nothing_of_its_parents():
    held = allocator.empty(LARGE, torch.float32).fill_(1.0)
    child = os.fork()
    if child == 0:  # what the child writes must not be seen by the parent, nor handed out twice
        mine = [allocator.empty(LARGE, torch.float32).fill_(2.0) for _ in range(2)]
        os._exit(0 if (held == 1.0).all() and (mine[0] == 2.0).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (held == 1.0).all()


def test_two_forward_passes_before_a_backward_pass_keep_what_each_needs():
    torch.manual_seed(0)
    layer = rc.layer("lstm", 16, 160, dtype=torch.float64)
    inputs = [torch.randn(60, 40, 16, dtype=torch.float64) for _ in range(2)]

    def gradients() -> list[torch.Tensor]:
        layer.zero_grad()
        losses = [layer(x)[0].square().sum() for x in inputs]
        sum(losses).backward()  # pyrefly: ignore
        return [p.grad.clone() for p in layer.parameters() if p.grad is not None]

    with set_backend("compiled"):
        found = gradients()
    with set_backend("reference"):
        wanted = gradients()
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-11)
