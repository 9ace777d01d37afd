"""Fixtures and collection rules for all tests: data folders, engines, CUDA tests, one thread and one seed per test."""

import os
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch
from engines import is_left_out, is_slow_on_default_engine

from recurra.engine import backend
from recurra.engine.backend import set_backend

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
NO_SHARED_DATA = "needs the data sets in ../shared/data, beside the repository"
NO_CUDA = "needs a CUDA device"
DEFAULT_ENGINE = ("engine", "estimators", "train")  # folders of tests that run on the engine recurra chooses

hypothesis.settings.register_profile("recurra", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("recurra")
torch.set_num_threads(1)  # the tests run in parallel as processes
backend._setting["check"] = os.environ.get(
    "RECURRA_CHECK", "0"
)  # tests compare engines themselves; see test_self_check


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `shared_data` or `gpu` where the data or the device is missing; mark slow engine variants."""
    missing = {} if SHARED_DATA.is_dir() else {"shared_data": NO_SHARED_DATA}
    if not torch.cuda.is_available():
        missing["gpu"] = NO_CUDA
    items[:] = [item for item in items if not is_left_out(item)]
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))
        if is_slow_on_default_engine(item):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def repository_root() -> Path:
    """The folder that holds pyproject.toml."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets beside the repository; use it together with the marker of the same name."""
    if not SHARED_DATA.is_dir():
        pytest.skip(NO_SHARED_DATA)
    return SHARED_DATA


@pytest.fixture(autouse=True)
def _plain_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run tests on the plain loop, except those of DEFAULT_ENGINE.

    On the plain loop a failure is one of the equations, and nothing is compiled. A test of any folder can select an
    engine by `set_backend` or by `@on_either_engine`.
    """
    if request.node.path.relative_to(ROOT / "tests").parts[0] in DEFAULT_ENGINE:
        yield
    else:
        with set_backend("reference"):
            yield


@pytest.fixture(autouse=True)
def _own_seed(request: pytest.FixtureRequest) -> None:
    """Seed the generators from the test's name: order and process do not matter."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    torch.manual_seed(seed)
