"""Rooms import in one direction: a room imports only from rooms above it, and no package has an import cycle.

Lazy imports inside functions count as well; only `if TYPE_CHECKING:` blocks do not. What a class of an earlier room
takes from a later one goes through `recurra/extensions.py`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import recurra

ROOT = Path(recurra.__file__).parent

# fmt: off
ROOMS = (
    "extensions", "errors", "argument_checks", "optional", "file_lock", "numerals", "init", "draws", "affine", "cell",
    "cells", "engine", "modifiers", "layer_arguments", "ragged", "dilation", "layer_states", "layer_inputs",
    "layer_trace", "layers", "named_layers", "last_outputs", "readout", "gated_output", "tensor_files", "storage",
    "interop", "dynamics", "reservoir",
    "data", "models", "train", "inspect", "estimators", "problem", "compare", "guide", "cli",
)
# `engine/` in its own order.
ENGINE = (
    "backend", "graph_constants", "literals", "operations", "user_code", "custom_vjp", "batch_sizes", "record",
    "dropouts", "torch_modes", "caches", "guards", "snapshots", "effects", "step_watch", "cell_cache",
    "cell_copies", "trace", "traced_step", "batch_check", "found_draws", "graph_rewriter", "latex", "watched_step",
    "reference", "split_at_resets", "restarts", "ir", "plan", "require_scan", "on_device", "cpu", "forward_mode",
    "newton", "gpu", "executors", "torch_op", "self_check", "prepared_calls", "dispatch", "checkpoint",
    "parallel_directions", "explain",
)
# fmt: on

# Upward imports not yet removed, (file, imported module). This list only shrinks.
EXCEPTIONS: set[tuple[str, str]] = set()

FILES = [path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py")) if path.parent != ROOT or path.stem[:2] != "__"]


def imported(file: Path) -> Iterator[tuple[str, str]]:
    """`(module, name)` of all that a file imports from recurra; the leading `recurra.` is left out, "" is the root."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    exempt = {id(node) for block in blocks for statement in block.body for node in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in exempt:
            continue
        if isinstance(node, ast.Import):
            yield from ((".".join(alias.name.split(".")[1:]), "") for alias in node.names if is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom):
            package = ["recurra", *file.parent.parts]
            base = package[: len(package) + 1 - node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            yield from ((module_of([*base[1:], alias.name]), alias.name) for alias in node.names if is_ours(base[0]))


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "recurra"


def module_of(name: list[str]) -> str:
    """`name` if it is a module, otherwise the module that defines it."""
    path = ROOT.joinpath(*name)
    return ".".join(name if path.is_dir() or path.with_suffix(".py").exists() else name[:-1])


def in_order(order: tuple[str, ...], importer: str, target: str) -> bool:
    known = importer in order and target in order
    return not known or order.index(target) <= order.index(importer)


def test_every_room_has_a_place_in_the_order():
    rooms = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__", "__main__"} <= set(ROOMS)


def test_every_stage_of_the_engine_has_a_place_in_the_order():
    stages = {path.stem for path in (ROOT / "engine").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert stages - {"__init__", "__pycache__"} == set(ENGINE)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_imports_only_from_rooms_above_it(file):
    room = file.parts[0].removesuffix(".py")
    for module, name in imported(file):
        if not module:  # the root has the public names, which come from every room
            assert room in ("guide", "cli") or name == "__version__", f"{file} imports {name} from the root"
            continue
        target, _, inside = module.partition(".")
        assert in_order(ROOMS, room, target), f"{file} imports recurra.{module}, a later room"
        if room == target == "engine":
            stage = file.parts[1].removesuffix(".py")
            assert in_order(ENGINE, stage, inside.partition(".")[0]), f"{file} imports recurra.{module}, a later stage"


@pytest.mark.parametrize("room", ["engine", "data", "models", "train", "inspect", "estimators", "interop", "reservoir"])
def test_a_room_has_no_import_cycle(room):
    graph = {}
    for file in FILES:
        if file.parts[0] == room and file.name != "__init__.py":
            name = ".".join(file.with_suffix("").parts)
            graph[name] = {module for module, _ in imported(file) if module.startswith(f"{room}.")}
    assert not cycle(graph)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle of the graph as a list of names, empty if there is none."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done or name not in graph:
            return []
        found = next((found for target in sorted(graph[name]) if (found := visit(target, [*path, name]))), [])
        done.add(name)
        return found

    return next((found for name in sorted(graph) if (found := visit(name, []))), [])
