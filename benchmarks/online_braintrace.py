"""The jobs of braintrace 0.2.6 for `benchmarks.online peers`: run by the interpreter in which it is installed.

    pip install braintrace==0.2.6        in an environment of its own
    python -m benchmarks.online peers --braintrace /path/to/that/python

For every line on standard input, one round of the job that it names: a call that is not timed, then some in a row. The
microseconds of processor time that a step takes go to standard output.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
import brainstate  # pyrefly: ignore
import braintools  # pyrefly: ignore
import braintrace  # pyrefly: ignore
import jax  # pyrefly: ignore
import jax.numpy as jnp  # pyrefly: ignore

INPUTS, UNITS, STEPS, FEW = 8, 64, 256, 32
IN_A_ROW = 5  # as in online.py


class Network(brainstate.nn.Module):
    def __init__(self, cell: str):
        super().__init__()
        self.cell = getattr(braintrace.nn, cell)(INPUTS, UNITS)
        self.out = braintrace.nn.Linear(UNITS, 1)

    def update(self, x: Any) -> Any:
        return x >> self.cell >> self.out


def job(cell: str, algorithm: Any, by_step: bool, steps: int = STEPS, window: int | None = None, **options: Any) -> Any:
    """A stream with an update of Adam after every step, or the gradient of a whole call."""
    brainstate.random.seed(0)
    x, y = brainstate.random.randn(steps, 1, INPUTS), brainstate.random.randn(steps, 1, 1)
    model, first = Network(cell), braintrace.MultiStepData(x[:2]) if window else x[0]
    learner = braintrace.compile(model, algorithm, first, batch_size=1, **options)

    def loss(x: Any, y: Any) -> Any:
        if window:
            return jnp.mean((learner(braintrace.MultiStepData(x)) - y) ** 2, axis=(1, 2))
        return jnp.mean((learner(x) - y) ** 2)

    weights = model.states(brainstate.ParamState)
    adam = braintools.optim.Adam(1e-3)
    adam.register_trainable_weights(weights)

    def one(x: Any, y: Any) -> Any:
        gradient, value = brainstate.transform.grad(lambda: loss(x, y), weights, return_value=True)()
        adam.update(gradient)
        return value

    @brainstate.transform.jit
    def run(x: Any, y: Any) -> Any:
        if by_step:
            return brainstate.transform.for_loop(one, x, y)
        return learner.etrace_grad(x, y, step_fn=loss, chunk_size=window, return_value=True)

    return lambda: jax.block_until_ready(run(x, y)), steps


JOBS: dict[str, Callable[[], Any]] = {
    "GRU-64, D-RTRL, a call": lambda: job("GRUCell", "d_rtrl", False),
    "GRU-64, D-RTRL, every step": lambda: job("GRUCell", "d_rtrl", True),
    "GRU-64, e-prop, a call": lambda: job("GRUCell", "eprop", False),
    "GRU-64, e-prop, every step": lambda: job("GRUCell", "eprop", True),
    "GRU-64, SnAp(1), a call": lambda: job("GRUCell", braintrace.SnAp, False, n=1),
    "GRU-64, SnAp(1), every step": lambda: job("GRUCell", braintrace.SnAp, True, n=1),
    "GRU-64, SnAp(2), a call": lambda: job("GRUCell", braintrace.SnAp, False, FEW, n=2),
    "GRU-64, SnAp(2), every step": lambda: job("GRUCell", braintrace.SnAp, True, FEW, n=2),
    "GRU-64, UORO, a call": lambda: job("GRUCell", "uoro", False, window=2),
    "minGRU-64, D-RTRL, a call": lambda: job("MiniGRU", "d_rtrl", False),
    "minGRU-64, D-RTRL, every step": lambda: job("MiniGRU", "d_rtrl", True),
}


def main() -> None:
    jobs: dict[str, Any] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in jobs:
            jobs[name] = JOBS[name]()
            jobs[name][0]()  # compiles
        run, steps = jobs[name]
        run()
        started = time.process_time()
        for _ in range(IN_A_ROW):
            run()
        print(json.dumps(1e6 * (time.process_time() - started) / steps / IN_A_ROW), flush=True)


if __name__ == "__main__":
    main()
