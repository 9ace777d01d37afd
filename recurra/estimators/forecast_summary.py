"""What a fitted forecaster consists of, in words."""

from typing import TYPE_CHECKING

import numpy as np

from .base_forecast import Member

if TYPE_CHECKING:
    from .forecaster import Forecaster


_LIKELIHOODS = {
    "gaussian": "normal distribution",
    "student_t": "t distribution",
    "negative_binomial": "negative binomial distribution",
}


def describe(model: "Forecaster") -> str:
    """The shares of the base forecast's members, largest first, and what validation decided on the network."""
    if model.likelihood is not None:
        return f"The {_LIKELIHOODS[model.likelihood]} of the next value is around a linear forecast. {_network(model)}"
    every = list(model.base_.series.values()) or [model.base_.usual]
    weights = np.mean([one.weights for one in every], axis=0)
    shares: dict[str, float] = {}
    for member, weight in zip(model.base_.members, weights, strict=True):
        shares[_kind(member)] = shares.get(_kind(member), 0.0) + float(weight)
    parts = [f"{share:.0%} {kind}" for kind, share in sorted(shares.items(), key=lambda one: -one[1]) if share >= 0.005]
    over = f", on average over {len(every)} series" if len(every) > 1 else ""
    return f"{_disturbed(model)}The base forecast is {', '.join(parts)}{over}. {_network(model)}"


def _disturbed(model: "Forecaster") -> str:
    if not model.disturbed_:
        return ""
    which = f" in {len(model.disturbed_)} of {len(every)} series" if len(every := model.past_.ids) > 1 else ""
    return f"Wild values or breaks{which} are not read: they came once, and no forecast tells the next. "


def _kind(member: Member) -> str:
    season = member.linear.seasons[0]
    if member.smoothing is not None:
        return f"exponential smoothing{' of logarithms' if member.log else ''}"
    if not member.linear.weights.any():
        return "the last value" if season == 1 else f"the values {season} steps before"
    read = np.flatnonzero(member.linear.weights.any(axis=0))
    if len(read) == 1:
        context = member.linear.each[0].context
        return f"the trend of the last {context - 1 - read[0]} steps"
    return "linear in logarithms" if member.log else "linear"


def _network(model: "Forecaster") -> str:
    if not model.calibrated_ and not model.share_:
        return "The series are too short to validate the network, so nothing of it is used."
    if not model.share_:
        return "The network did not forecast the held-out end of the series better, so nothing of it is used."
    held = "by what is best on the held-out end of the series" if model.calibrated_ else "without validation"
    if model.network == "es_rnn":
        return f"The ES-RNN has the weight {model.share_:g} beside it, {held}."
    return f"The network adds to it with weight {model.share_:g}, {held}."
