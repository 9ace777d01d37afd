"""Errata of attribution and presentation: computed where numbers can show them, else listed with the right sentence."""

from collections.abc import Callable

import torch

from recurra.engine.backend import set_backend
from recurra.layers import Recurrent
from recurra.train.errata_mathematical import Network
from recurra.train.erratum import Erratum


def _attribution(number: str, lines: str, printed: str, right: str, *shown: str | float) -> Erratum:
    return Erratum(number, lines, printed, right, *shown, kind="attribution")  # pyrefly: ignore


def _presentation(number: str, lines: str, printed: str, right: str) -> Erratum:
    return Erratum(number, lines, printed, right, kind="presentation")


def e16(net: Network) -> Erratum:
    """The eigenvalues of a matrix close to I lie around 1, on both sides."""
    W = torch.eye(50, dtype=torch.float64) + 0.1 * net.draw(50, 50) / 50**0.5
    size = float(torch.linalg.eigvals(W).abs().max())
    printed = "close to the identity means eigenvalues slightly below one (Mikolov 2015)"
    right = "I has eigenvalue 1; SCRN fixes one block to 0.95 I (rc.SCRN), Le 2015 starts at I with ReLU (rc.IRNN)"
    what = "largest |λ| of W = I + 0.1 N, at most 1 if so"
    return _attribution("E16", "342", printed, right, what, 1.0, size, size - 1)


def e18(net: Network) -> Erratum:
    """With W = 0 the printed network should keep its state for ever; tanh forgets it."""
    start = net.draw(net.p)
    h = start
    for _ in range(50):
        h = torch.tanh(h)
    kept = float(h.norm() / start.norm())
    printed = "W + I with tanh copies the previous state exactly (Hu 2018)"
    right = (
        "the paper uses ReLU (rc.RIN); with tanh the copy is inside the nonlinearity, and every eigenvalue moves by one"
    )
    return _attribution("E18", "345-353", printed, right, "‖h_50‖ / ‖h_0‖ at W = 0", 1.0, kept, 1 - kept)


def e19(net: Network, rate: float = 0.8, delay: int = 3, steps: int = 60) -> Erratum:
    """A delay of k turns λⁿ into λ^(n/k): slower, and still exponential. By the companion matrix of the delay line."""
    p = net.p
    orthogonal = torch.linalg.qr(net.draw(p, p))[0]
    companion = torch.zeros(p * delay, p * delay, dtype=torch.float64)
    companion[:p, -p:] = rate * orthogonal
    companion[p:, :-p] = torch.eye(p * (delay - 1), dtype=torch.float64)
    left = float(torch.linalg.matrix_norm(torch.linalg.matrix_power(companion, steps)[:p, :p], 2))
    right = "NARX delays the outputs (rc.NARX), and the gradient decays by λ^(n/k), still exponentially"
    what = f"‖dh_{steps}/dh_0‖ with |W_{delay}| = {rate}"
    return _attribution(
        "E19", "360, 377", "long delays of states prevent vanishing (Lin 1995)", right, what, 1.0, left, 1 - left
    )


def e26(net: Network) -> Erratum:
    """With the reset gate shut a GRU still keeps (1 - z) of its state."""
    h, z = net.h[-1].clone().requires_grad_(), net.draw(net.p).sigmoid()
    closed = torch.zeros(net.p, dtype=torch.float64)
    new = (1 - z) * h + z * torch.tanh(net.W @ (closed * h) + net.U @ net.x[-1])
    (kept,) = torch.autograd.grad(new.sum(), h)
    share = float(kept.mean())
    right = "z is the input gate and 1 - z the forget gate; r only gates what the candidate sees of h"
    what = "share of h_{t-1} that stays at r = 0"
    return _attribution("E26", "648, 659", "reset ≈ forget gate, update ≈ input gate", right, what, 0.0, share, share)


def e27b(net: Network) -> Erratum:
    """If one bidirectional layer fed the next, the forward half of ELMo would know the future."""

    def future(bidirectional: bool | str) -> float:
        layer = Recurrent("lstm", 3, 4, num_layers=2, bidirectional=bidirectional, dtype=torch.float64)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(0.7 * net.draw(*parameter.shape))
        with set_backend("reference"):
            jacobian = torch.autograd.functional.jacobian(lambda x: layer(x)[0][0, 0, :4], net.draw(2, 1, 3))
        assert isinstance(jacobian, torch.Tensor)
        return float(jacobian[:, 1].norm())

    mixed, apart = future(True), future("separate")
    right = (
        "two stacks that meet only in the mix; outputs are projections with a residual; s and γ are learned (rc.ELMo)"
    )
    printed = "each bidirectional LSTM feeds the next; s and γ are hyperparameters"
    what = "‖d(forward half at t)/dx_{t+1}‖"
    return _attribution("E27b", "771-772, 782", printed, right, what, mixed, apart, abs(mixed - apart))


ATTRIBUTION: tuple[Erratum | Callable[[Network], Erratum], ...] = (
    e16,
    _attribution(
        "E17",
        "344",
        "orthogonal W, citing Arjovsky 2016",
        "that model is complex and unitary: a product of structured factors, with modReLU (rc.UnitaryRNN)",
    ),
    e18,
    e19,
    _attribution(
        "E20",
        "574",
        "full gate recurrence came with Gers 2000",
        "it was part of the original of 1997 and disappeared afterwards (Greff et al. 2017)",
    ),
    _attribution(
        "E21",
        "565-566",
        "the original LSTM has the survey's gates and was trained by BPTT and RTRL",
        "its squashers are 4σ - 2 and 2σ - 1, blocks share gates, c_t = c_{t-1} + i ⊙ c̃, and its gradient is truncated "
        "(rc.OriginalLSTM, rc.train.OriginalLSTMRule)",
    ),
    _attribution(
        "E22",
        "613",
        "context-sensitive evolutionary learning trained LSTMs (Bayer 2009)",
        "evolution changed the structure of the memory cell; formal languages, also context-sensitive ones, were the "
        "measure (rc.train.evolve_cells)",
    ),
    _attribution(
        "E23",
        "618-631",
        "the GRU came with Cho 2014, “On the properties…”; Chung 2014: it improves on LSTM; it is the most used",
        "it came with Cho et al., EMNLP 2014; Chung et al. found the two comparable; the last claim has no source",
    ),
    _attribution(
        "E25b",
        "624, 694",
        "the minimal gated unit is of Heck & Salem 2017",
        "it is of Zhou et al. 2016 (rc.MGU); Heck & Salem gave its three reductions (rc.MGU1, rc.MGU2, rc.MGU3)",
    ),
    e26,
    e27b,
    _attribution(
        "E33",
        "382",
        "leaky units, citing Sutskever & Hinton 2010",
        "there the leak is on the sum inside the nonlinearity (rc.TemporalKernelRNN); Jaeger 2007 has two constants",
    ),
)

PRESENTATION: tuple[Erratum, ...] = (
    _presentation(
        "E28",
        "125, 455",
        "i_t and b_i are the RNN's sum and also the input gate",
        "two names are needed; recurra calls the sum a and the gate i",
    ),
    _presentation(
        "E29", "81-763", "no h_0, c_0 or h←_{T+1}", "states before the first step are zero unless given or learned"
    ),
    _presentation(
        "E30",
        "250-251, 268",
        "the section on U refers to the equation of W; “changing b”; “BPPT”",
        "the equation of U, b_i, BPTT",
    ),
    _presentation(
        "E32",
        "127-684",
        "closed ranges [-1, 1] and [0, 1]; the GRU's h_t in R^p",
        "tanh and sigmoid have open ranges, and the GRU's h_t stays in (-1, 1)^p",
    ),
    _presentation(
        "E34",
        "404-409",
        "echo state networks without spectral radius, washout or regularisation",
        "all three decide whether one works (rc.EchoStateNetwork: spectral_radius, washout, ridge)",
    ),
    _presentation(
        "E35", "622", "the GRU has three gates instead of four", "two gates instead of three; a candidate is no gate"
    ),
)
