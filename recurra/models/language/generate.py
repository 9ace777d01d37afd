"""Sampling of text from a language model."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import InputError, OptionError

if TYPE_CHECKING:
    from .model import LanguageModel


@torch.no_grad()
def generate(
    model: "LanguageModel",
    prompt: str,
    length: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int | None,
) -> str:
    """See `LanguageModel.generate`."""
    if model.direction == "both":
        raise OptionError("generate", "a bidirectional model", "a model with direction 'forward' or 'backward'")
    if not isinstance(length, int) or length < 0:
        raise InputError("length", length, "a whole number of tokens")
    device = next(model.parameters()).device
    random = make_generator(seed, device)
    tokens = _prompt(model, prompt)
    written = _continue(model, tokens.to(device), length, (temperature, top_k, top_p), random)
    if prompt and model.vocabulary.level == "character" and model.direction == "forward":
        return prompt + model.vocabulary.decode(written.cpu())  # unknown characters of the prompt stay as they are
    whole = torch.cat([tokens if prompt else tokens[:0], written.cpu()])
    return model.vocabulary.decode(whole.flip(0) if model.direction == "backward" else whole)


def make_generator(seed: int | None, device: torch.device) -> torch.Generator:
    """A generator with this seed; without one, seeded from torch's global generator."""
    return torch.Generator(device).manual_seed(int(torch.randint(2**62, ())) if seed is None else seed)


def _prompt(model: "LanguageModel", prompt: str) -> Tensor:
    """The tokens of the prompt in reading order; without a prompt, a line break."""
    if prompt:
        tokens = model.vocabulary.encode(prompt)
        return tokens.flip(0) if model.direction == "backward" else tokens
    return torch.tensor([model.vocabulary.boundary or 0])


def _continue(
    model: "LanguageModel",
    tokens: Tensor,
    length: int,
    choice: tuple[float, int | None, float | None],
    random: torch.Generator,
) -> Tensor:
    training, written = model.training, []
    model.eval()
    try:
        log_probs, state = model(tokens[:, None])
        for _ in range(length):
            known = _without_unknown(log_probs[-1], model.vocabulary.unknown)
            token = sample_token(known, choice[0], choice[1], choice[2], random)  # (1,)
            written.append(token)
            log_probs, state = model(token[None], state)
    finally:
        model.train(training)
    return torch.cat(written) if written else tokens[:0]


def _without_unknown(log_probs: Tensor, unknown: int | None) -> Tensor:
    """Log-probabilities (B, V) in which the symbol for unknown tokens cannot be sampled."""
    if unknown is None or log_probs.shape[-1] < 2:
        return log_probs
    return log_probs.index_fill(-1, torch.tensor([unknown], device=log_probs.device), -torch.inf)


def sample_token(
    log_probs: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    random: torch.Generator | None = None,
) -> Tensor:
    """Log-probabilities (B, V) → one sampled token per row, (B,)."""
    if not temperature >= 0:
        raise InputError("temperature", temperature, "a number of at least 0")
    if temperature == 0:
        return log_probs.argmax(dim=-1)
    allowed = filter_logits(log_probs / temperature, top_k, top_p)
    return torch.multinomial(allowed.softmax(dim=-1), 1, generator=random)[:, 0]


def filter_logits(logits: Tensor, top_k: int | None = None, top_p: float | None = None) -> Tensor:
    """Logits with -inf outside the `top_k` likeliest tokens and outside the smallest set of probability `top_p`."""
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise InputError("top_k", top_k, "a positive whole number")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError("top_p", top_p, "a probability above 0, at most 1")
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    kept = torch.ones_like(ordered, dtype=torch.bool)
    if top_k is not None:
        kept[..., top_k:] = False
    if top_p is not None:
        probabilities = ordered.masked_fill(~kept, -torch.inf).softmax(dim=-1)
        kept &= probabilities.cumsum(dim=-1) - probabilities < top_p  # the likelier tokens sum to less than p
    return logits.masked_fill(~torch.zeros_like(kept).scatter(-1, order, kept), -torch.inf)
