"""Mutations of a memory cell's graph (after Bayer, Wierstra, Togelius & Schmidhuber 2009; the list is our reading)."""

import random
from collections.abc import Callable

from recurra.errors import InputError
from recurra.train.cell_nodes import is_cell
from recurra.train.genome import ACTIVATIONS, LARGEST, Genome, Node, arity

Edge = tuple[str, int]  # a node, and which of its inputs


class Draft:
    """A mutable copy of a genome; `finish` checks it and makes a new genome."""

    def __init__(self, genome: Genome):
        self.nodes, self.output, self.memories = dict(genome.nodes), genome.output, dict(genome.memories)

    def finish(self) -> Genome:
        self._prune()
        return Genome(self.nodes, self.output, self.memories)

    def fresh(self, stem: str) -> str:
        taken = {*self.nodes, *self.memories}
        return next(f"{stem}{k}" for k in range(10_000) if f"{stem}{k}" not in taken)

    def before(self, name: str) -> list[str]:
        """Names a node may read: states and earlier nodes."""
        order = list(self.nodes)
        return ["h", *self.memories, *order[: order.index(name)]]

    def insert(self, before: str, name: str, node: Node) -> None:
        items = list(self.nodes.items())
        place = list(self.nodes).index(before)
        self.nodes = dict([*items[:place], (name, node), *items[place:]])

    def rewire(self, edge: Edge, source: str) -> None:
        name, place = edge
        node = self.nodes[name]
        inputs = [*node.inputs[:place], source, *node.inputs[place + 1 :]]
        self.nodes[name] = Node(node.operation, tuple(inputs), node.bias)

    def replace(self, old: str, new: str) -> None:
        """Redirect all readers of `old` to `new`."""
        for name, node in self.nodes.items():
            inputs = tuple(new if source == old else source for source in node.inputs)
            inputs = tuple(dict.fromkeys(inputs)) if node.operation == "affine" else inputs
            self.nodes[name] = Node(node.operation, inputs, node.bias)
        self.memories = {state: new if source == old else source for state, source in self.memories.items()}
        self.output = new if self.output == old else self.output

    def edges(self, operations: tuple[str, ...] | None = None) -> list[Edge]:
        """Edges with a value of the hidden size; x enters only through weights."""
        found = ((n, k) for n, node in self.nodes.items() for k in range(len(node.inputs)))
        hidden = [e for e in found if self.nodes[e[0]].inputs[e[1]] != "x"]
        return [e for e in hidden if operations is None or self.nodes[e[0]].operation in operations]

    def _prune(self) -> None:
        """Remove nodes that neither the output nor a memory that is read depends on."""
        live, stack = set(), [self.output]
        while stack:
            name = stack.pop()
            if name in live:
                continue
            live.add(name)
            if name in self.nodes:
                stack += self.nodes[name].inputs
            elif name in self.memories:
                stack.append(self.memories[name])
        self.nodes = {name: node for name, node in self.nodes.items() if name in live}
        self.memories = {state: source for state, source in self.memories.items() if state in live}


def add_connection(draft: Draft, chance: random.Random) -> None:
    name = _pick(draft, chance, lambda node: len(node.inputs) < arity(node.operation)[1])
    node = draft.nodes[name]
    free = [s for s in draft.before(name) if s not in node.inputs]
    free += ["x"] if node.operation == "affine" and "x" not in node.inputs else []
    source = _one_of(free, chance)
    draft.nodes[name] = Node(node.operation, (*node.inputs, source), node.bias)


def remove_connection(draft: Draft, chance: random.Random) -> None:
    name = _pick(draft, chance, lambda node: len(node.inputs) > arity(node.operation)[0])
    node = draft.nodes[name]
    gone = chance.randrange(len(node.inputs))
    draft.nodes[name] = Node(node.operation, (*node.inputs[:gone], *node.inputs[gone + 1 :]), node.bias)


def split_connection(draft: Draft, chance: random.Random) -> None:
    edge = _one_of(draft.edges(), chance)
    unit = draft.fresh("u")
    draft.insert(edge[0], unit, Node(chance.choice(ACTIVATIONS), (draft.nodes[edge[0]].inputs[edge[1]],)))
    draft.rewire(edge, unit)


def add_gate(draft: Draft, chance: random.Random) -> None:
    edge = _one_of(draft.edges(), chance)
    a, gate, product = draft.fresh("a"), draft.fresh("s"), draft.fresh("m")
    draft.insert(edge[0], a, Node("affine", ("x", "h"), chance.choice((-1.0, 0.0, 1.0))))
    draft.insert(edge[0], gate, Node("sigmoid", (a,)))
    draft.insert(edge[0], product, Node("multiply", (draft.nodes[edge[0]].inputs[edge[1]], gate)))
    draft.rewire(edge, product)


def add_memory(draft: Draft, chance: random.Random) -> None:
    """Replace an edge by the running sum of its values: a self-loop with weight one."""
    edge = _one_of([e for e in draft.edges() if draft.nodes[e[0]].inputs[e[1]] in draft.nodes], chance)
    state, total = draft.fresh("c"), draft.fresh("k")
    draft.insert(edge[0], total, Node("add", (state, draft.nodes[edge[0]].inputs[edge[1]])))
    draft.memories[state] = total
    draft.rewire(edge, total)


def remove_memory(draft: Draft, chance: random.Random) -> None:
    """Remove a memory; its readers read the last output instead."""
    state = _one_of(list(draft.memories), chance)
    del draft.memories[state]
    draft.replace(state, "h")


def change_activation(draft: Draft, chance: random.Random) -> None:
    name = _pick(draft, chance, lambda node: node.operation in ACTIVATIONS)
    node = draft.nodes[name]
    draft.nodes[name] = Node(chance.choice([a for a in ACTIVATIONS if a != node.operation]), node.inputs)


def change_bias(draft: Draft, chance: random.Random) -> None:
    name = _pick(draft, chance, lambda node: node.operation == "affine")
    node = draft.nodes[name]
    draft.nodes[name] = Node(
        "affine", node.inputs, chance.choice([b for b in (-2.0, -1.0, 0.0, 1.0, 2.0) if b != node.bias])
    )


def duplicate(draft: Draft, chance: random.Random) -> None:
    """Duplicate a node and the affine nodes it reads, with separate weights, and add the two."""
    edge = _one_of([e for e in draft.edges() if draft.nodes[e[0]].inputs[e[1]] in draft.nodes], chance)
    original = draft.nodes[edge[0]].inputs[edge[1]]
    inputs = []
    for source in draft.nodes[original].inputs:
        if source in draft.nodes and draft.nodes[source].operation == "affine":
            twin = draft.fresh("a")
            draft.insert(edge[0], twin, draft.nodes[source])
            inputs.append(twin)
        else:
            inputs.append(source)
    copy, total = draft.fresh("d"), draft.fresh("k")
    node = draft.nodes[original]
    draft.insert(edge[0], copy, Node(node.operation, tuple(inputs), node.bias))
    draft.insert(edge[0], total, Node("add", (original, copy)))
    draft.rewire(edge, total)


def feed_cell(draft: Draft, chance: random.Random) -> None:
    """Let a whole cell read a weighted sum of x and the last output in the place of x."""
    name = _pick(draft, chance, lambda node: is_cell(node.operation) and node.inputs == ("x",))
    source = draft.fresh("a")
    draft.insert(name, source, Node("affine", ("x", "h")))
    draft.rewire((name, 0), source)


def delete(draft: Draft, chance: random.Random) -> None:
    """Remove a node; its readers read one of its inputs, and nodes that only it read are removed."""
    name = _pick(draft, chance, lambda node: any(source in draft.nodes for source in node.inputs))
    source = _one_of([s for s in draft.nodes[name].inputs if s in draft.nodes], chance)
    draft.replace(name, source)


MUTATIONS: dict[str, Callable[[Draft, random.Random], None]] = {
    f.__name__: f
    for f in (
        add_connection,
        remove_connection,
        split_connection,
        add_gate,
        add_memory,
        remove_memory,
        change_activation,
        change_bias,
        duplicate,
        delete,
    )
}


MUTATIONS_OF_CELLS = MUTATIONS | {"feed_cell": feed_cell}  # of genomes with whole cells


class _Impossible(Exception):
    """A mutation does not apply to this genome."""


def mutate(genome: Genome, chance: random.Random, tries: int = 100) -> Genome:
    """Apply one random mutation that gives another valid genome which still depends on x and on its past."""
    mutations = MUTATIONS_OF_CELLS if genome.cells() else MUTATIONS
    for _ in range(tries):
        draft = Draft(genome)
        try:
            mutations[chance.choice(list(mutations))](draft, chance)
            changed = draft.finish()
        except (_Impossible, InputError):
            continue
        if changed != genome and len(changed.nodes) <= LARGEST and _alive(changed):
            return changed
    raise InputError("genome", genome.source(), "a genome that some mutation fits")


def _alive(genome: Genome) -> bool:
    read = {source for node in genome.nodes.values() for source in node.inputs}
    return "x" in read and bool(genome.cells() or read & {"h", *genome.memories})


def _pick(draft: Draft, chance: random.Random, fits: Callable[[Node], bool]) -> str:
    return _one_of([name for name, node in draft.nodes.items() if fits(node)], chance)


def _one_of(choices: list, chance: random.Random):
    if not choices:
        raise _Impossible
    return chance.choice(choices)
