"""What every test shares: where data lies, one thread, a seed of its own, and reproducible random cases."""

import random
import zlib
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from recurra.engine.dispatch import set_backend

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
NO_SHARED_DATA = "needs the data sets in ../shared/data, beside the repository"

hypothesis.settings.register_profile("recurra", derandomize=True, deadline=None, max_examples=25)
hypothesis.settings.load_profile("recurra")
torch.set_num_threads(1)  # the tests run in parallel as processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that read the shared data say so with a marker, and are skipped by name where the folder is absent."""
    if SHARED_DATA.is_dir():
        return
    skip = pytest.mark.skip(reason=NO_SHARED_DATA)
    for item in items:
        if item.get_closest_marker("shared_data"):
            item.add_marker(skip)


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
    """Tests run on the plain loop, where a failure is one of the equations and nothing needs compiling.

    Those in tests/engine hold the engines against it, and those in tests/train compare with processes of their own:
    both run on what recurra chooses. A test of any room may ask for an engine by `set_backend`.
    """
    if request.node.path.relative_to(ROOT / "tests").parts[0] in ("engine", "train"):
        yield
    else:
        with set_backend("reference"):
            yield


@pytest.fixture(autouse=True)
def _own_seed(request: pytest.FixtureRequest) -> None:
    """A test's random numbers depend on its name alone, not on which tests ran before it or in which process."""
    seed = zlib.crc32(request.node.nodeid.encode())
    random.seed(seed)
    torch.manual_seed(seed)
