"""A layer of 512 LIF neurons over (T, B, D) = (500, 10, 512), beside snntorch's and SpikingJelly's own.

    OMP_NUM_THREADS=1 python -m benchmarks.spiking [cpu | cuda]

Each is a linear map of all steps and neurons that decay by 0.9 and subtract their threshold, with a surrogate
derivative; SpikingJelly's runs its multi-step mode, and on a card each of its backends that is there. A recurrent layer
has no compiled peer. On a CPU: processor time of one thread, the median of interleaved rounds. On a card: wall time
between synchronisations. A peer that is not installed is left out. Writes results/spiking_<device>.json and .md.
"""

import importlib.util
import json
import statistics
import sys
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
RESULTS = Path(__file__).resolve().parent / "results"
Forward = Callable[[Tensor], Tensor]


def snntorch_layer(device: str) -> tuple[nn.Module, Forward]:
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


def spikingjelly_layer(device: str, backend: str) -> tuple[nn.Module, Forward]:
    """SpikingJelly's LIFNode in multi-step mode."""
    from spikingjelly.activation_based import functional, neuron, surrogate  # pyrefly: ignore

    linear = nn.Linear(SIZE[2], UNITS).to(device)
    neurons = neuron.LIFNode(
        tau=1 / (1 - BETA), decay_input=False, v_reset=None, detach_reset=True, step_mode="m",
        surrogate_function=surrogate.ATan(),
    ).to(device)  # fmt: skip
    neurons.backend = backend

    def forward(x: Tensor) -> Tensor:
        functional.reset_net(neurons)
        return neurons(linear(x))

    return linear, forward


def recurra_layer(name: str, device: str) -> tuple[nn.Module, Forward]:
    layer = rc.layer(name, SIZE[2], UNITS, beta=BETA).to(device)
    return layer, lambda x: layer(x)[0]


def contestants(device: str) -> dict[str, tuple[nn.Module, Forward]]:
    found = {name: recurra_layer(name, device) for name in ("lif", "recurrent_lif")}
    if importlib.util.find_spec("snntorch"):
        found["snntorch Leaky"] = snntorch_layer(device)
    if importlib.util.find_spec("spikingjelly"):
        packages = {"cupy": "cupy", "triton": "triton"} if device == "cuda" else {}
        backends = ["torch", *(name for name, package in packages.items() if importlib.util.find_spec(package))]
        found |= {f"SpikingJelly LIFNode, {b}": spikingjelly_layer(device, b) for b in backends}
    return found


def jobs(module: nn.Module, forward: Forward, x: Tensor) -> dict[str, Callable[[], None]]:
    cotangent = torch.randn(*SIZE[:2], UNITS, device=x.device)

    def infer() -> None:
        with torch.no_grad():
            forward(x)

    def train() -> None:
        module.zero_grad(set_to_none=True)
        forward(x).backward(cotangent)

    return {"forward": infer, "forward + backward": train}


def seconds_on_card(job: Callable[[], None], rounds: int = 20) -> float:
    for _ in range(3):
        job()
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        job()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def main(device: str = "cpu") -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(*SIZE, device=device)
    table = {(name, kind): job for name, made in contestants(device).items() for kind, job in jobs(*made, x).items()}
    if device == "cuda":
        found = {key: seconds_on_card(job) for key, job in table.items()}
    else:
        found = interleaved(table, 5, time.process_time)
    rows = [{"layer": name, "kind": kind, "milliseconds": 1e3 * s} for (name, kind), s in found.items()]
    for row in rows:
        print(f"{row['layer']:30} {row['kind']:20} {row['milliseconds']:9.2f} ms")
    about = {"command": f"OMP_NUM_THREADS=1 python -m benchmarks.spiking {device}", "size": [*SIZE, UNITS]}
    about |= environment("snntorch", "spikingjelly")
    target = RESULTS / f"spiking_{device}"
    target.with_suffix(".json").write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    target.with_suffix(".md").write_text(table_of(about, found, device), encoding="utf-8")


def table_of(about: dict, found: dict[tuple[str, str], float], device: str) -> str:
    versions = ", ".join(f"{name} {about[name]}" for name in ("torch", "snntorch", "spikingjelly") if about[name])
    clock = "wall time" if device == "cuda" else "processor time of one thread"
    lines = ["# Spiking layers beside snntorch and SpikingJelly", ""]
    lines += [
        f"`{about['command']}`: {about['device'] or about['processor']}, {clock}, {versions}. A linear map and 512 LIF "
        f"neurons over (T, B, D) = {SIZE}, float32, medians in milliseconds; `recurrent_lif` has products of spikes "
        "in every step as well.",
        "",
        "| layer | forward | forward + backward |",
        "|---|---|---|",
    ]
    names = dict.fromkeys(name for name, _ in found)
    times = {name: [1e3 * found[name, kind] for kind in ("forward", "forward + backward")] for name in names}
    lines += [f"| {name} | {' | '.join(f'{ms:.1f}' for ms in both)} |" for name, both in times.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(*sys.argv[1:2])
