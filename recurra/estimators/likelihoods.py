"""Likelihoods of the next value (Salinas et al. 2020, DeepAR): normal, Student's t, and negative binomial for counts.

A network gives raw numbers, which may have any sign. The likelihood makes parameters of them, around a linear forecast:
location and scale in the units of the window, or for counts the mean as a factor of the forecast.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.distributions import Distribution, NegativeBinomial, Normal, StudentT
from torch.nn import functional as F

LEAST = 1e-3  # of a scale in units of the window, and of the dispersion of counts
SHARPNESS = 10.0  # of the smooth bound that keeps the mean of counts positive
MOST = 1e6  # of the mean of counts, in units of the window
LARGEST_EXPONENT = 5.0  # of the factor that the network puts on the mean of counts


class Likelihood(ABC):
    """From a forecast, a scale and raw numbers (…, size) to a distribution of the next value."""

    size: int  # of the raw numbers and of the parameters
    counts = False  # values are whole numbers from 0 on, not deviations in units of the window

    @abstractmethod
    def parameters(self, raw: Tensor, forecast: Tensor, scale: Tensor) -> Tensor:
        """(…, size): the parameters, from raw numbers (…, size), the linear forecast and the scale of counts (…)."""

    @abstractmethod
    def distribution(self, parameters: Tensor) -> Distribution:
        """The distribution with parameters (…, size)."""


class GaussianLikelihood(Likelihood):
    """Normal, with mean and standard deviation."""

    size = 2

    def parameters(self, raw: Tensor, forecast: Tensor, scale: Tensor) -> Tensor:
        return torch.stack([forecast + raw[..., 0], LEAST + F.softplus(raw[..., 1])], dim=-1)

    def distribution(self, parameters: Tensor) -> Distribution:
        return Normal(*parameters.unbind(-1), validate_args=False)


class StudentTLikelihood(Likelihood):
    """Student's t, with location, scale and more than two degrees of freedom: the variance is finite."""

    size = 3

    def parameters(self, raw: Tensor, forecast: Tensor, scale: Tensor) -> Tensor:
        spread, freedom = LEAST + F.softplus(raw[..., 1]), 2 + LEAST + F.softplus(raw[..., 2])
        return torch.stack([forecast + raw[..., 0], spread, freedom], dim=-1)

    def distribution(self, parameters: Tensor) -> Distribution:
        location, spread, freedom = parameters.unbind(-1)
        return StudentT(freedom, location, spread, validate_args=False)


class NegativeBinomialLikelihood(Likelihood):
    """Negative binomial, with mean m and dispersion d: the variance is m + d m². Forecast and mean are in units of the
    window's scale, by whose root the dispersion is divided, as in the paper."""

    size, counts = 2, True

    def parameters(self, raw: Tensor, forecast: Tensor, scale: Tensor) -> Tensor:
        factor = raw[..., 0].clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp()
        positive = F.softplus(SHARPNESS * forecast) / SHARPNESS
        mean = scale * (positive * factor).clamp(max=MOST)
        return torch.stack([mean, (LEAST + F.softplus(raw[..., 1])) / scale.sqrt()], dim=-1)

    def distribution(self, parameters: Tensor) -> Distribution:
        mean, dispersion = parameters.unbind(-1)
        return NegativeBinomial(1 / dispersion, logits=(mean * dispersion).log(), validate_args=False)


LIKELIHOODS: dict[str, type[Likelihood]] = {
    "gaussian": GaussianLikelihood,
    "student_t": StudentTLikelihood,
    "negative_binomial": NegativeBinomialLikelihood,
}


class NegativeLogLikelihood:
    """The mean over the steps of -log p of targets (B, steps) under parameters (B, steps, size), one value per
    window."""

    def __init__(self, likelihood: Likelihood):
        self.likelihood = likelihood

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return -self.likelihood.distribution(output).log_prob(target).mean(dim=1)


def fit_constants(likelihood: Likelihood, forecast: Tensor, scale: Tensor, actual: Tensor) -> Tensor:
    """(size,): the raw numbers, the same for all, under which actual values (n,) are most likely; in float64."""
    raw = torch.zeros(likelihood.size, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([raw], max_iter=200, line_search_fn="strong_wolfe")
    forecast, scale, actual = forecast.double(), scale.double(), actual.double()

    def closure() -> Tensor:
        optimizer.zero_grad()
        parameters = likelihood.parameters(raw.expand(len(actual), -1), forecast, scale)
        loss = -likelihood.distribution(parameters).log_prob(actual).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    return raw.detach()
