"""The modes of the GPU engine (row_per_program, cooperative, stepwise) against cuDNN.

python benchmarks/tiers.py            # prints the table; the constants of `recurra/engine/gpu` are set by it
"""

import torch
from speed_gpu import jobs_of, milliseconds  # pyrefly: ignore
from torch import Tensor, nn

import recurra as rc
from recurra.engine.gpu import select

SIZES = (
    (512, 64, 32, 32),
    (512, 64, 64, 64),
    (512, 256, 64, 64),
    (512, 64, 128, 128),
    (128, 128, 1024, 1024),
    (64, 1, 2048, 2048),
    (64, 16, 2048, 2048),
    (64, 64, 2048, 2048),
    (64, 256, 2048, 2048),
    (32, 64, 4096, 4096),
)
SMALL = SIZES[:4]  # where one program per row is possible
CELLS = {"lstm": nn.LSTM, "gru": nn.GRU}


def timed(module: nn.Module, x: Tensor) -> tuple[float, float]:
    """Milliseconds of a forward pass and of a training step, calls timed one by one."""
    infer, train = jobs_of(module, x)
    return milliseconds(infer, samples=5, calls=1), milliseconds(train, samples=5, calls=1)


def error(module: nn.Module, x: Tensor, mode: str) -> float:
    """The largest relative error of an output or a gradient, against the plain loop in the same dtype."""

    def results() -> list[Tensor]:
        module.zero_grad(set_to_none=True)
        y = module(x)[0]
        y.backward(torch.linspace(-1, 1, y.numel(), device=y.device).view_as(y).to(y.dtype))
        return [y.detach().float(), *(p.grad.float() for p in module.parameters() if p.grad is not None)]

    with select.only(mode):
        found = results()
    with rc.set_backend("reference"):
        wanted = results()
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True))


def main() -> None:
    print(f"{'cell':6}{'(T, B, D, H)':26}{'mode':18}{'forward / training, ms':>24}   error")
    for size in SIZES:
        steps, batch, inputs, units = size
        x = torch.randn(steps, batch, inputs, device="cuda", dtype=torch.bfloat16)
        for name, peer in CELLS.items():
            with torch.device("cuda"):
                module = rc.layer(name, inputs, units).to(torch.bfloat16)
            for mode in ("row_per_program", "cooperative") if size in SMALL else ("cooperative", "stepwise"):
                with select.only(mode):
                    forward, training = timed(module, x)
                wrong = error(module, x[:5], mode)
                print(f"{name:6}{size!s:26}{mode:18}{forward:12.3f} / {training:9.3f}   {wrong:.1e}", flush=True)
            for dtype in (torch.float16, torch.bfloat16):
                forward, training = timed(peer(inputs, units, device="cuda", dtype=dtype), x.to(dtype))
                said = f"cuDNN {str(dtype).removeprefix('torch.')}"
                print(f"{name:6}{size!s:26}{said:18}{forward:12.3f} / {training:9.3f}", flush=True)


if __name__ == "__main__":
    main()
