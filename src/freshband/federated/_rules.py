"""Policies of a comparison: what stands behind ``@``, and the settings each policy trains with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from freshband._policy import Policy, spelled
from freshband.errors import ParameterError, UnknownNameError
from freshband.federated._spelling import weighted_mean
from freshband.federated.algorithms.base import _options_of, read_algorithm
from freshband.federated.algorithms.fedavg import _WEIGHTINGS
from freshband.federated.settings import Training


def settings_of(
    settings: Training,
    policy: str | Policy,
    options: Mapping[str, Any] | None = None,
    run: int = 0,
) -> Training:
    """Return the settings with which one policy of a comparison trains in one run.

    Examples
    --------
    >>> chosen = settings_of(Training(), "glr-cucb+age@fedbuff", {"delta": 0.01}, run=3)
    >>> chosen.build_policy().name, chosen.algorithm, chosen.policy_options, chosen.run
    ('glr-cucb+age', 'fedbuff', {'delta': 0.01}, 3)
    """
    draft, idle = _draft(settings, policy, options, run)
    return Training(**draft.without(idle))


def _draft(
    settings: Training, policy: str | Policy, options: Mapping[str, Any] | None, run: int
) -> tuple[Training, dict[str, str]]:
    """Return the settings with which a policy trains, and which of them it leaves to others."""
    text = spelled(policy)
    options = policy.options if isinstance(policy, Policy) else options
    name, at, rule = text.strip().partition("@")
    own: dict[str, Any] = {
        "policy": name,
        "matching": None,
        "policy_options": dict(options or {}),
        "run": run,
    }
    named = rule.split("+") if at else []
    try:
        own |= _read_rule(settings, named)
    except UnknownNameError:
        raise
    except ParameterError as error:
        raise ParameterError(f"policy {text!r}: {error}") from None
    draft = Training.as_stored({**settings.model_dump(), **own})
    return draft, {key: why for key, why in draft.unused().items() if key not in named}


def _read_rule(settings: Training, named: list[str]) -> dict[str, Any]:
    """Return the algorithm of a policy: what it names, and what the settings have beside it.

    ``paper`` stands for the paper's round, with weights by contribution.
    """
    base, *wrappers = read_algorithm(settings.algorithm)
    options, printed = dict(settings.algorithm_options), {}
    if "paper" in named:  # equation (7), repaired, with the weights (43)
        named = ["renorm", *(name for name in named if name != "paper")]
        printed = {"weights": "contribution"}
    if "async" in named:  # one of the weighted means: the one that is named, or the settings have
        means = [name for name in (*named, base) if name in _WEIGHTINGS]
        mean = means[0] if means else weighted_mean(options)
        named = [mean, *(name for name in named if name not in ("async", mean))]
    own, *more = read_algorithm("+".join(named)) if named else [base]
    if set(named) <= set(more):
        own = base
    elif own == "fedavg" and base in _WEIGHTINGS and base != "renorm":
        options.setdefault("weighting", base)
    for wrapper in more:  # a policy that names one means its defaults
        options = {key: each for key, each in options.items() if key not in _options_of(wrapper)}
    kept = [name for name in wrappers if name not in more]
    algorithm = "+".join([own, *kept, *more])
    return {"algorithm": algorithm, "algorithm_options": options, **printed}


def unused_by_all(
    settings: Training, policies: Mapping[str, str | Policy], options: Mapping[str, Any]
) -> dict[str, str]:
    """Return what the settings of a comparison hold that none of its policies uses, and why."""
    drafts = [
        _draft(settings, text, options.get(name), settings.run) for name, text in policies.items()
    ]
    idle = [found for _, found in drafts]
    shared = {
        name: why
        for name, why in (idle[0] if idle else {}).items()
        if all(name in each for each in idle)
    }
    base, *_ = read_algorithm(settings.algorithm)
    used = {
        part
        for draft, _ in drafts
        for part in (*read_algorithm(draft.algorithm), draft.algorithm_options.get("weighting"))
    }
    if base not in {"renorm", *used}:
        shared["algorithm"] = f"algorithm {base!r} is replaced by that of every policy"
    return {name: f"{why}: no policy compared uses it" for name, why in shared.items()}
