"""The compiled forward-mode step of a network with its head, and why a network has none."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from recurra.engine.backend import backend
from recurra.engine.forward_mode.influence import START, CompiledInfluence, InfluencePlan, NotCompiled
from recurra.readout import Readout
from recurra.train.step_function import StepFunction

# Modules that treat every row by itself and draw nothing, so that many steps may be handed to them at once.
BY_ROWS = (Readout, nn.Identity, nn.Linear, nn.Sequential, nn.LayerNorm, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU)


def influence_plan(
    step_fn: StepFunction, steps: int | None, local: bool = False, by_any_backend: bool = False
) -> InfluencePlan:
    """The plan of the influence that `steps` steps reach (None: any number); raises `NotCompiled` with the reason.

    `local`: of each unit on itself alone. `by_any_backend`: the algorithm exists in this form only, so that
    `set_backend("reference")` does not concern it.
    """
    if step_fn.layer is None:
        raise NotCompiled("a module without recurrence carries no influence")
    if backend() == "reference" and not by_any_backend:
        raise NotCompiled("set_backend('reference') is in force")
    if step_fn.layer.dropout and step_fn.layer.training:
        raise NotCompiled("dropout between layers in training mode")
    step_fn.prepare()
    return InfluencePlan(step_fn.cells, step_fn.layer.depth, steps, local)


class Head:
    """The head of a network on the outputs of one step, as a small graph from them and from its own weights."""

    def __init__(self, step_fn: StepFunction):
        self.module, self.weights = step_fn.head, step_fn.readout
        self.output = self.result = torch.empty(0)  # of the layer, a leaf; of the head

    def __call__(self, output: Tensor) -> Tensor:
        self.output = output.detach().clone().requires_grad_()
        with torch.enable_grad():
            self.result = functional_call(self.module, self.weights, (self.output,))
        return self.result

    def over_steps(self, outputs: Tensor) -> Tensor:
        """On outputs (K, B, H) of many steps. Statistics of a batch, or draws, are those of one step at a time."""
        if all(type(m) in BY_ROWS and not m._forward_hooks and not m._forward_pre_hooks for m in self.module.modules()):
            return self(outputs.flatten(0, 1)).unflatten(0, outputs.shape[:2])
        self.output = outputs.detach().clone().requires_grad_()
        with torch.enable_grad():
            steps = [functional_call(self.module, self.weights, (output,)) for output in self.output]
            self.result = torch.stack(steps)
        return self.result

    def error(self, loss: Tensor) -> Tensor:
        """Of the loss by the output of the head, (B, q)."""
        return torch.autograd.grad(loss, self.result, retain_graph=True)[0]

    def gradients(self, loss: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Of the loss by the output of the layer, (B, H), and by the weights of the head."""
        weights = list(self.weights.values())
        found = torch.autograd.grad(loss, [self.output, *weights], allow_unused=True)
        by_output = torch.zeros_like(self.output) if found[0] is None else found[0]
        return by_output, [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found[1:], strict=True)]


class WeightGradients:
    """From gradients of the tensors that a compiled step reads to those of the parameters of its cells."""

    def __init__(self, step_fn: StepFunction, plan: InfluencePlan):
        self.plan, self.names, self.parameters = plan, list(step_fn.recurrent), list(step_fn.recurrent.values())
        self.read = [*self.parameters, *(b for cell in step_fn.cells for b in cell.buffers())]
        self.versions: Sequence[int] = ()

    def refresh(self) -> None:
        """Derive weights anew if a parameter or a buffer has changed."""
        versions = [tensor._version for tensor in self.read]
        if versions != self.versions:
            self.plan.weights.refresh()
            self.versions = versions

    def __call__(self, found: dict[tuple[int, str], Tensor]) -> list[Tensor]:
        """In the order of `step_fn.recurrent`."""
        weights, own = self.plan.weights, {}
        derived: list[tuple[Tensor, Tensor]] = []
        for (k, name), gradient in found.items():
            if name.startswith(START) or weights.is_direct(k, name):
                own[f"{k}.{name.removeprefix(START)}"] = gradient
            elif weights.derived[k, name].requires_grad:
                derived.append((weights.derived[k, name], gradient))
        gradients = [own.get(name) for name in self.names]
        if derived:
            values, cotangents = zip(*derived, strict=True)
            pulled = torch.autograd.grad(values, self.parameters, cotangents, retain_graph=True, allow_unused=True)
            gradients = [
                a if b is None else b if a is None else a.view_as(b) + b for a, b in zip(gradients, pulled, strict=True)
            ]
        pairs = zip(gradients, self.parameters, strict=True)
        return [torch.zeros_like(p) if g is None else g.view(p.shape) for g, p in pairs]


__all__ = ["CompiledInfluence", "Head", "InfluencePlan", "NotCompiled", "WeightGradients", "influence_plan"]
