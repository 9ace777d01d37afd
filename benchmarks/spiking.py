"""A layer of 512 LIF neurons over (T, B, D) = (500, 10, 512), beside snntorch's and SpikingJelly's own.

    OMP_NUM_THREADS=1 python -m benchmarks.spiking [--device cpu | cuda]

Each is a linear map of all steps and neurons that decay by 0.9 and subtract their threshold, with a surrogate
derivative. SpikingJelly's runs its multi-step mode, on a card by the implementation that it chooses itself (its own
CUDA code if that is built, else Triton's). The recurrent layer has no compiled peer: snntorch's is called once for
every step. On a CPU: processor time of one thread, the median of interleaved rounds. On a card: wall time between
synchronisations. A peer that cannot be imported or fails is left out, with its reason. After every row, the results so
far are written to results/spiking_cpu or results/spiking_h200, .json and .md.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.environment import environment
from benchmarks.timing import interleaved

SIZE = (500, 10, 512)
UNITS = 512
BETA = 0.9
KINDS = ("forward", "forward + backward")
RESULTS = Path(__file__).resolve().parent / "results"
FILES = {"cpu": "spiking_cpu", "cuda": "spiking_h200"}
Forward = Callable[[Tensor], Tensor]
Made = tuple[nn.Module, Forward]


def recurra_layer(name: str, device: str) -> Made:
    layer = rc.layer(name, SIZE[2], UNITS, beta=BETA).to(device)
    return layer, lambda x: layer(x)[0]


def snntorch_layer(device: str) -> Made:
    """snntorch's Leaky, which is called once for every step."""
    import snntorch

    linear = nn.Linear(SIZE[2], UNITS).to(device)
    neurons = snntorch.Leaky(beta=BETA, spike_grad=snntorch.surrogate.fast_sigmoid(slope=25)).to(device)

    def forward(x: Tensor) -> Tensor:
        currents, potential, spikes = linear(x), neurons.reset_mem(), []
        for current in currents:
            spike, potential = neurons(current, potential)
            spikes.append(spike)
        return torch.stack(spikes)

    return linear, forward


def recurrent_snntorch_layer(device: str) -> Made:
    """snntorch's RLeaky: every neuron reads the last spikes of all."""
    import snntorch

    linear, gradient = nn.Linear(SIZE[2], UNITS), snntorch.surrogate.fast_sigmoid(slope=25)
    neurons = snntorch.RLeaky(beta=BETA, linear_features=UNITS, spike_grad=gradient)
    both = nn.ModuleList([linear, neurons]).to(device)

    def forward(x: Tensor) -> Tensor:
        (spike, potential), spikes = neurons.reset_mem(), []
        for current in linear(x):
            spike, potential = neurons(current, spike, potential)
            spikes.append(spike)
        return torch.stack(spikes)

    return both, forward


def spikingjelly_layer(device: str) -> Made:
    """SpikingJelly's LIFNode in multi-step mode."""
    from spikingjelly.activation_based import functional, neuron, surrogate  # pyrefly: ignore

    linear = nn.Linear(SIZE[2], UNITS).to(device)
    neurons = neuron.LIFNode(
        tau=1 / (1 - BETA), decay_input=False, v_reset=None, detach_reset=True, step_mode="m",
        surrogate_function=surrogate.ATan(),
    ).to(device)  # fmt: skip

    def forward(x: Tensor) -> Tensor:
        functional.reset_net(neurons)
        return neurons(linear(x))

    return linear, forward


CONTESTANTS: dict[str, Callable[[str], Made]] = {
    "lif": lambda device: recurra_layer("lif", device),
    "recurrent_lif": lambda device: recurra_layer("recurrent_lif", device),
    "SpikingJelly LIFNode": spikingjelly_layer,
    "snntorch Leaky": snntorch_layer,
    "snntorch RLeaky": recurrent_snntorch_layer,
}


def jobs(module: nn.Module, forward: Forward, x: Tensor) -> dict[str, Callable[[], None]]:
    cotangent = torch.randn(*SIZE[:2], UNITS, device=x.device)

    def infer() -> None:
        with torch.no_grad():
            forward(x)

    def train() -> None:
        module.zero_grad(set_to_none=True)
        forward(x).backward(cotangent)

    return dict(zip(KINDS, (infer, train), strict=True))


def usable(device: str, x: Tensor) -> dict[tuple[str, str], Callable[[], None]]:
    """The jobs of all layers that can be made and run once, and compile in that run."""
    found = {}
    for name, make in CONTESTANTS.items():
        try:
            made = jobs(*make(device), x)
            for job in made.values():
                job()
        except Exception as error:  # a peer of another version, or without its compiler: the others are still measured
            print(f"{name:30} left out: {type(error).__name__}: {str(error).splitlines()[:1]}", flush=True)
            continue
        found |= {(name, kind): job for kind, job in made.items()}
    return found


def seconds_on_card(job: Callable[[], None], rounds: int = 15) -> float:
    """The median wall time of one run, the card idle before and after."""
    found = []
    for number in range(3 + rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        job()
        torch.cuda.synchronize()
        if number >= 3:  # warm
            found.append(time.perf_counter() - began)
    return statistics.median(found)


def write(device: str, about: dict, found: dict[tuple[str, str], float]) -> None:
    rows = [{"layer": name, "kind": kind, "milliseconds": 1e3 * s} for (name, kind), s in found.items()]
    target = RESULTS / FILES[device]
    target.with_suffix(".json").write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    target.with_suffix(".md").write_text(table_of(about, found, device), encoding="utf-8")


def main(device: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(*SIZE, device=device)
    about: dict = {"command": f"OMP_NUM_THREADS=1 python -m benchmarks.spiking --device {device}"}
    about |= {"size": [*SIZE, UNITS]} | environment("snntorch", "spikingjelly")
    table, found = usable(device, x), dict[tuple[str, str], float]()
    if device == "cpu":
        found = interleaved(table, 5, time.process_time)
    for (name, kind), job in table.items():
        if device == "cuda":
            found[name, kind] = seconds_on_card(job)
        print(f"{name:30} {kind:20} {1e3 * found[name, kind]:9.3f} ms", flush=True)
        write(device, about, found)


def table_of(about: dict, found: dict[tuple[str, str], float], device: str) -> str:
    versions = ", ".join(f"{name} {about[name]}" for name in ("torch", "snntorch", "spikingjelly") if about[name])
    clock = "wall time" if device == "cuda" else "processor time of one thread"
    lines = ["# Spiking layers beside snntorch and SpikingJelly", ""]
    lines += [
        f"`{about['command']}`: {about['device'] or about['processor']}, {clock}, {versions}. A linear map and 512 LIF "
        f"neurons over (T, B, D) = {SIZE}, float32, medians in milliseconds; `recurrent_lif` and RLeaky have products "
        "of spikes in every step as well.",
        "",
        "| layer | forward | forward + backward |",
        "|---|---|---|",
    ]
    for name in dict.fromkeys(name for name, _ in found):
        times = (f"{1e3 * found[name, kind]:.2f}" if (name, kind) in found else "" for kind in KINDS)
        lines.append(f"| {name} | {' | '.join(times)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    main(parser.parse_args().device)
