"""The mathematical errata of the survey, each computed in its printed and in its correct form on one random network.

`DEMONSTRATIONS` has them in order, each with the reason why the printed form is wrong.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from recurra.train.erratum import Erratum


class Network:
    """A small RNN with a readout, one forward pass, and its correct gradient."""

    def __init__(self, seed: int, p: int = 5, d: int = 3, q: int = 2, steps: int = 6):
        self.random = torch.Generator().manual_seed(seed)
        self.p, self.q, self.T = p, q, steps
        self.W, self.U, self.V = self.draw(p, p) * 0.7, self.draw(p, d), self.draw(q, p)
        self.x, self.d = self.draw(steps, d), self.draw(steps, q)
        self.h = self.run(self.W)  # (T + 1, p): h_0 first
        self.g = self.h[1:] @ self.V.T - self.d  # dL/dy_t of ½‖y - d‖²
        self.right_W = self.gradient_of_W()
        self.autograd_W = self.differentiated()  # what right_W and every wrong form are held against

    def draw(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random, dtype=torch.float64)

    def run(self, W: Tensor, x: Tensor | None = None, start: Tensor | None = None) -> Tensor:
        hs = [torch.zeros(self.p, dtype=torch.float64) if start is None else start]
        for x_t in self.x if x is None else x:
            hs.append(torch.tanh(W @ hs[-1] + self.U @ x_t))
        return torch.stack(hs)

    def differentiated(self) -> Tensor:
        W = self.W.clone().requires_grad_()
        with torch.enable_grad():
            loss = 0.5 * (self.run(W)[1:] @ self.V.T - self.d).square().sum()
        return torch.autograd.grad(loss, W)[0]

    def D(self, t: int) -> Tensor:
        return torch.diag(1 - self.h[t] ** 2)

    def gradient_of_W(
        self,
        D: Callable[[int], Tensor] | None = None,
        back: Callable[[int], Tensor] | None = None,
        last: Callable[[], Tensor] | None = None,
    ) -> Tensor:
        """Σ_t D_t δ_t h_{t-1}ᵀ with δ_t = Vᵀ g_t + back(t) δ_{t+1}; the arguments substitute a printed form."""
        D = D or self.D
        back = back or (lambda t: (D(t + 1) @ self.W).T)
        total = torch.zeros_like(self.W)
        delta = self.V.T @ self.g[-1] if last is None else last()
        for t in range(self.T, 0, -1):
            if t < self.T:
                delta = self.V.T @ self.g[t - 1] + back(t) @ delta
            total += torch.outer(D(t) @ delta, self.h[t - 1])
        return total

    def last_loss(self, x: Tensor) -> Tensor:
        """½‖y_T - d_T‖² for inputs x (T, d)."""
        return 0.5 * (self.V @ self.run(self.W, x)[-1] - self.d[-1]).square().sum()

    def last_loss_by_inputs(self, back: int) -> Tensor:
        """dL_T/dx_t by the recursion over the last `back` steps; zero before them."""
        found, delta = torch.zeros_like(self.x), self.V.T @ self.g[-1]
        for t in range(self.T, max(self.T - back, 0), -1):
            error = self.D(t) @ delta
            found[t - 1], delta = self.U.T @ error, self.W.T @ error
        return found


def relative(printed: Tensor, right: Tensor) -> float:
    return float((printed - right).norm() / right.norm())


def _of_gradient(number: str, lines: str, printed: str, right: str, net: Network, wrong: Tensor) -> Erratum:
    what = "relative error of dL/dW against autograd"
    values = relative(wrong, net.autograd_W), relative(net.right_W, net.autograd_W)
    return Erratum(number, lines, printed, right, what, *values, values[0])


def e1(net: Network) -> Erratum:
    y = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    printed = y[0].exp() / y.exp().sum()
    right = y.softmax(0)
    error = float((printed.expand(3) - right).abs().max())
    what = "third component for y = (1, 2, 3)"
    return Erratum(
        "E1", "134", "exp(y_1) / Σ exp(y_j)", "exp(y_k) / Σ exp(y_j)", what, float(printed), float(right[2]), error
    )


def e2(net: Network) -> Erratum:
    """With L_1 the newest loss, δ_t ← δ_{t+1} would run from the past into the future."""
    flipped = torch.zeros_like(net.W)
    delta = torch.zeros(net.p, dtype=torch.float64)
    for t in range(1, net.T + 1):
        delta = net.V.T @ net.g[t - 1] + ((net.D(t - 1) @ net.W).T @ delta if t > 1 else 0)
        flipped += torch.outer(net.D(t) @ delta, net.h[t - 1])
    return _of_gradient("E2", "154", "L_1 is the current loss", "L_T is the current loss", net, flipped)


def e3(net: Network, back: int = 2) -> Erratum:
    """The loss of the last step by an input four steps ago: what the cut recursion gives, and what differences give."""
    cut = float(net.last_loss_by_inputs(back)[2].norm())
    changes = torch.eye(net.x.shape[1], dtype=torch.float64) * 1e-6
    found = [net.last_loss(net.x.index_add(0, torch.tensor([2]), sign * d[None])) for d in changes for sign in (1, -1)]
    right = float((torch.stack(found[::2]) - torch.stack(found[1::2])).div(2e-6).norm())
    what = f"‖dL_{net.T}/dx_3‖, the recursion cut to {back} steps against differences"
    printed = "after the cut, h is T-order Markov"
    return Erratum("E3", "150", printed, "only the gradient is cut; h depends on every input", what, cut, right, right)


def e4(net: Network) -> Erratum:
    """Read for columns, with the shapes forced to fit, the printed products lose their transposes."""
    wrong = net.gradient_of_W(back=lambda t: net.D(t + 1) @ net.W)
    return _of_gradient("E4", "180", "δ_{t+1} × ∂h_{t+1}/∂h_t", "(∂h_{t+1}/∂h_t)ᵀ δ_{t+1}", net, wrong)


def e5(net: Network) -> Erratum:
    last = torch.zeros(net.p, dtype=torch.float64)
    last[: net.q] = net.g[-1]  # dL/dy_T has q entries where δ_T has p: padded, to have a value at all
    wrong = net.gradient_of_W(last=lambda: last)
    return _of_gradient("E5", "206", "δ_T = ∂L/∂y_T", "δ_T = Vᵀ ∂L/∂y_T", net, wrong)


def e6(net: Network) -> Erratum:
    """An update of h_t is overwritten by the next forward pass: the loss it promises to save is not saved."""
    delta = net.V.T @ net.g[-1]
    moved = 0.5 * (net.V @ (net.h[-1] - 0.01 * delta) - net.d[-1]).square().sum()
    values = float(net.last_loss(net.x) - moved), float(0.5 * net.g[-1].square().sum() - net.last_loss(net.x))
    what = "fall of the loss by h_T := h_T - 0.01 δ_T, and what is left of it after the next forward pass"
    return Erratum(
        "E6", "289", "h_t := h_t - η ∂L/∂h_t", "only parameters are updated", what, *values, values[0] - values[1]
    )


def e7(net: Network) -> Erratum:
    eye = torch.eye(net.p, dtype=torch.float64)
    wrong = net.gradient_of_W(D=lambda t: (1 - net.h[t] @ net.h[t]) * eye)
    return _of_gradient("E7", "196, 200, 234", "(1 - hᵀh) I", "diag(1 - h ⊙ h)", net, wrong)


def e8(net: Network) -> Erratum:
    wrong = net.gradient_of_W(back=lambda t: (net.W @ net.D(t + 1)).T)
    return _of_gradient("E8", "194-198", "∂h_{t+1}/∂h_t = W D", "D W", net, wrong)


def e9(net: Network) -> Erratum:
    """The loss of the last step alone: Σ_t ∂L_t/∂h_t ∂h_t/∂θ sums other steps' losses instead."""
    total = torch.zeros_like(net.W)
    delta = net.V.T @ net.g[-1]
    printed = torch.zeros_like(net.W)
    for t in range(net.T, 0, -1):
        total += torch.outer(net.D(t) @ delta, net.h[t - 1])
        printed += torch.outer(net.D(t) @ (net.V.T @ net.g[t - 1]), net.h[t - 1])
        delta = (net.D(t) @ net.W).T @ delta
    what = "norm of dL_T/dW"
    right = "Σ_t ∂L_T/∂h_T ∂h_T/∂h_t ∂⁺h_t/∂θ"
    values = float(printed.norm()), float(total.norm()), relative(printed, total)
    return Erratum("E9", "311-313", "Σ_t ∂L_t/∂h_t ∂h_t/∂θ", right, what, *values)


def e10(net: Network) -> Erratum:
    """Counted backwards, h_t = f(h_{t+1}, x_t); x_{T+1}, x_T and h_{T+1}, h_T are the third and fourth of the pass."""
    printed = net.run(net.W, net.x[2:3], net.h[4])[-1]  # f(h_T, x_{T+1}), which f(·, x_T) reads in place of h_{T+1}
    right = net.run(net.W, net.x[3:4], net.h[3])[-1]  # f(h_{T+1}, x_T), which is h_T
    values = relative(printed, net.h[3]), relative(right, net.h[4])
    what = "relative distance of the innermost value from the state it stands for"
    forms = "innermost f(h_T, x_{T+1})", "innermost f(h_{T+1}, x_T)"
    return Erratum("E10", "307", *forms, what, *values, values[0])


def e11(net: Network) -> Erratum:
    values, vectors = torch.linalg.eig(net.W)
    printed = (vectors @ torch.diag(values) @ vectors.T).real
    right = (vectors @ torch.diag(values) @ torch.linalg.inv(vectors)).real
    error = float((printed - net.W).abs().max())
    what = f"largest entry off W (right form: {float((right - net.W).abs().max()):.1g})"
    return Erratum("E11", "328-337", "W = A Λ Aᵀ", "W = A Λ A⁻¹", what, error, 0.0, error)


def e12(net: Network) -> Erratum:
    def memory(tau: float) -> float:
        h, J = torch.zeros(net.p, dtype=torch.float64), torch.eye(net.p, dtype=torch.float64)
        W = 0.5 * net.W / torch.linalg.matrix_norm(net.W, 2)
        for _ in range(50):
            new = torch.tanh(W @ h)
            J = ((1 - 1 / tau) * torch.eye(net.p) + (1 / tau) * torch.diag(1 - new**2) @ W) @ J
            h = (1 - 1 / tau) * h + new / tau
        return float(torch.linalg.matrix_norm(J, 2))

    short, long = memory(1.0), memory(100.0)
    what = "‖dh_50/dh_0‖ of the setting called “keep”"
    right = "τ = 1 forgets, τ ≫ 1 keeps"
    return Erratum("E12", "391-402", "τ = 1 keeps, τ ≫ 1 forgets", right, what, short, long, abs(long - short))


def _powers(number: str, lines: str, printed: str, right: str, what: str, small: float, large: float) -> Erratum:
    return Erratum(number, lines, printed, right, what, small, large, abs(math.log10(large) - math.log10(small)))


def e13(net: Network) -> Erratum:
    what = "λ⁵⁰ with λ = 0.9 and 1.1 (error: powers of ten)"
    return _powers("E13", "337", "“less than one, i.e., λ > 1”", "greater than one", what, 0.9**50, 1.1**50)


def e14(net: Network) -> Erratum:
    what = "gradient after 50 steps, forgotten and exploded (error: powers of ten)"
    return _powers("E14", "337", "λ > 1: “forgets very long time ago”", "λ > 1: explodes", what, 0.9**50, 1.1**50)


def e15(net: Network) -> Erratum:
    """Contractive: two points come closer. Nothing is contrasted."""
    W = 0.9 * net.W / torch.linalg.matrix_norm(net.W, 2)
    a, b = net.draw(net.p), net.draw(net.p)
    factor = float((torch.tanh(W @ a) - torch.tanh(W @ b)).norm() / (a - b).norm())
    return Erratum(
        "E15", "336, 341", "“contrastive”", "contractive", "‖f(a) - f(b)‖ / ‖a - b‖", 1.0, factor, 1 - factor
    )


def e24(net: Network) -> Erratum:
    h, r = net.h[-1], net.draw(net.p).sigmoid()
    outside = 3 * net.U @ net.x[-1]
    printed = torch.tanh(net.W @ (r * h)) + outside
    right = torch.tanh(net.W @ (r * h) + outside)
    values = float(printed.abs().max()), float(right.abs().max()), float((printed - right).abs().max())
    return Erratum("E24", "666, 710", "tanh(W_c (r ⊙ h)) + U_c x", "tanh(W_c (r ⊙ h) + U_c x)", "largest |h̃|", *values)


def e25(net: Network) -> Erratum:
    """The minimal gated unit has one gate, f; with another gate r in the candidate it is another cell."""
    h, f, r = net.h[-1], net.draw(net.p).sigmoid(), net.draw(net.p).sigmoid()
    printed, right = ((1 - f) * h + f * torch.tanh(net.W @ (gate * h) + net.U @ net.x[-1]) for gate in (r, f))
    values = float(printed.norm()), float(right.norm()), relative(printed, right)
    return Erratum("E25", "698", "the gate puts out r_t", "f_t", "norm of h_t", *values)


def e27a(net: Network) -> Erratum:
    layers, s = net.draw(3, net.p), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    right, printed = (s[:, None] * layers).sum(0), (s[1:, None] * layers[1:]).sum(0)
    values = float(printed.norm()), float(right.norm()), relative(printed, right)
    return Erratum("E27a", "780", "Σ_{l=1..L}", "Σ_{l=0..L}, the token layer too", "norm of ELMo's sum", *values)


def e31(net: Network) -> Erratum:
    """With the total ∂h_t/∂W the paths through earlier states are counted again by every later δ_t."""
    p = net.p
    influence = torch.zeros(p, p * p, dtype=torch.float64)
    eye = torch.eye(p, dtype=torch.float64)
    deltas = {net.T: net.V.T @ net.g[-1]}
    for t in range(net.T - 1, 0, -1):
        deltas[t] = net.V.T @ net.g[t - 1] + (net.D(t + 1) @ net.W).T @ deltas[t + 1]
    wrong = torch.zeros(p * p, dtype=torch.float64)
    for t in range(1, net.T + 1):
        influence = net.D(t) @ (net.W @ influence + torch.kron(net.h[t - 1][None], eye))
        wrong += influence.T @ deltas[t]
    return _of_gradient("E31", "223-240", "total ∂h_t/∂W", "immediate ∂⁺h_t/∂W", net, wrong.view(p, p).T)


DEMONSTRATIONS: dict[Callable[[Network], Erratum], str] = {
    e1: "with y_1 above the line, all components would be the same number",
    e2: "δ_t needs δ_{t+1}: the recursion starts at the newest step, so that must be T",
    e3: "cutting the recursion drops terms of the gradient; the forward pass still carries every input in h",
    e4: "with gradients as columns, as in the other lines of the section, the chain rule has the transpose first",
    e5: "the output has q entries and the state p; V leads from one to the other",
    e6: "h_t is no parameter: the next forward pass computes it anew from the weights",
    e7: "hᵀh is one number for all units, where every unit has its own slope 1 - h²; with five units 1 - hᵀh can be "
    "negative",
    e8: "h_{t+1} is tanh of W h_t + …: the tanh comes last, so its D stands on the left",
    e9: "the loss of step T depends on h_t through h_T; the losses of other steps are no part of it",
    e10: "h_T has read x_{T+1} already; the step that made it went from h_{T+1} over x_T",
    e11: "eigenvectors of a general W are not orthogonal, and its eigenvalues are complex; what decides is the largest "
    "|λ|, the spectral radius",
    e12: "at τ = 1 the old state has the factor 1 - 1/τ = 0; at large τ it has nearly 1",
    e13: "the second case is that of powers that grow",
    e14: "powers of a number above one grow; the sentence belongs to the case before",
    e15: "the word is for maps that bring points closer together",
    e24: "the bracket closes before U_c x, which is then outside of the tanh, and h̃ is unbounded",
    e25: "the unit has one gate, and the next line of the print calls it f",
    e27a: "the released models mix the token layer, too",
    e31: "δ_t counts what flows through later states already; with the total derivative each path counts again",
}
