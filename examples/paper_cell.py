"""Reproduce a paper from its equations: the recurrent weighted average (Ostmeyer & Cowell 2017) on the adding problem.

    python examples/paper_cell.py                                    # 100 steps, about a minute
    python examples/paper_cell.py --length 400 --updates 1500

The cell keeps a running average over all past steps, weighted by a learned attention:

    z_t = u(x_t) ∘ tanh g(x_t, h_{t-1})        a_t = a(x_t, h_{t-1})
    n_t = n_{t-1} + z_t e^{a_t}                d_t = d_{t-1} + e^{a_t}               h_t = tanh(n_t / d_t)

The paper's claim: since no step has to be carried through gates, it learns long sums in fewer updates than an LSTM.
Its appendix keeps the largest exponent so far, so that no exponential overflows; so does `step`.
"""

import argparse

import torch
from torch import Tensor, exp, maximum, nn, tanh

import recurra as rc


class WeightedAverage(rc.Cell):
    """Recurrent weighted average (Ostmeyer & Cowell 2017). `m` is the largest exponent so far."""

    states = ("h", "n", "d", "m")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.u, self.g, self.a = self.affine("x"), self.affine("x", "h"), self.affine("x", "h", bias=False)

    def step(self, x: Tensor, h: Tensor, n: Tensor, d: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        z, a = self.u(x) * tanh(self.g(x, h)), self.a(x, h)
        largest = maximum(m, a)
        old, new = exp(m - largest), exp(a - largest)
        n, d = n * old + z * new, d * old + new
        return tanh(n / d), n, d, largest


def train(layer: rc.Recurrent, task: rc.data.tasks.CanonicalTask, updates: int, seed: int) -> list[float]:
    """Squared errors on new batches, averaged over each tenth of the updates."""
    readout, losses = nn.Linear(layer.output_size, 1), []
    optimizer = torch.optim.Adam([*layer.parameters(), *readout.parameters()], lr=2e-3)
    for batch in task.batches(50, count=updates, seed=seed).epoch(0):
        y, _ = layer(batch.inputs)
        loss = nn.functional.mse_loss(readout(y[-1]), batch.targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses[: updates // 10 * 10]).view(10, -1).mean(1).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--units", type=int, default=64)
    chosen = parser.parse_args()

    print(WeightedAverage.equations())
    task = rc.data.tasks.adding(chosen.length)
    print(f"\nAdding problem, {chosen.length} steps; always answering the mean gives {task.baseline:.3f}.")
    print("squared error over each tenth of the updates:")
    for name, cell in {"weighted average": WeightedAverage, "LSTM": "lstm"}.items():
        torch.manual_seed(0)
        layer = rc.Recurrent(cell, task.input_size, chosen.units)
        errors = train(layer, task, chosen.updates, seed=0)
        print(f"{name:17}", *(f"{error:.3f}" for error in errors), flush=True)


if __name__ == "__main__":
    main()
