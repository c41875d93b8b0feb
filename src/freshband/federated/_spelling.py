"""How the settings of a training run were spelt before, and what the old spelling stands for.

Earlier versions kept the options of all server rules, and those of the valuation, beside the other
settings, and called the policy ``scheduler``. Files and users may still say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from freshband.errors import ParameterError, shown
from freshband.federated.algorithms.base import _options_of, read_algorithm, registry
from freshband.federated.algorithms.fedavg import _WEIGHTINGS
from freshband.federated.contribution import ValuationOptions
from freshband.parameters import whole_number

OF_ALGORITHMS: Final = frozenset(
    {"mixing", "staleness", "staleness_a", "staleness_b", "buffer_size", "server_lr"}
)
OF_VALUATION: Final = frozenset(ValuationOptions.model_fields)
FORMER: Final = (
    OF_ALGORITHMS | OF_VALUATION | {"scheduler", "aggregation", "served", "local_rounds"}
)


def modernise(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as they are spelt today; options at their defaults are left out.

    Examples
    --------
    >>> modernise({"aggregation": "fixed", "served": "average", "mixing": 0.6})
    {'valuation_options': {}, 'algorithm_options': {}, 'algorithm': 'fixed+average'}
    """
    read = {name: value for name, value in values.items() if name not in FORMER}
    if "scheduler" in values:
        if "policy" in values:
            raise ParameterError("policy was called scheduler before: give one of them")
        read["policy"] = values["scheduler"]
    _gather(values, OF_VALUATION, "valuation_options", read)
    options = _gather(values, OF_ALGORITHMS, "algorithm_options", read)
    if isinstance(options, dict):  # else the field's type says what is wrong
        read["algorithm"] = _read_algorithm(values, options)
    return read


def _gather(
    values: Mapping[str, Any], names: frozenset[str], field: str, read: dict[str, Any]
) -> Any:
    """Put settings that were spelt out beside the others into the options they belong to."""
    options = read[field] = values.get(field, {})
    if isinstance(options, dict):
        flat = {name: value for name, value in values.items() if name in names}
        twice = sorted(flat.keys() & options.keys())
        if twice:
            raise ParameterError(f"{twice[0]} is given twice, by itself and in {field}")
        flat = {name: value for name, value in flat.items() if value != _default(name)}
        read[field] = {**options, **flat}
    return read[field]


def _default(name: str) -> Any:
    for each in registry if name in OF_ALGORITHMS else ():
        if name in _options_of(each):
            return registry[each].model_fields[name].default
    return ValuationOptions.model_fields[name].default


def _read_algorithm(values: Mapping[str, Any], options: dict[str, Any]) -> str:
    """Return the algorithm's name, with what stood in other settings; options change with it."""
    weighting = values.get("aggregation", "renorm")
    if weighting not in _WEIGHTINGS:
        raise ParameterError(
            f"aggregation must be one of {', '.join(_WEIGHTINGS)}, got {shown(weighting)}"
        )
    if weighting != "renorm":
        options["weighting"] = weighting
    text = values.get("algorithm", "renorm")
    named = text.split("+") if isinstance(text, str) else []
    if "async" in named:
        text = "+".join("renorm" if name == "async" else name for name in named)
    names = read_algorithm(text)
    if names[0] == "renorm" and ("async" in named or "aggregation" in values):
        names[0] = weighted_mean(options)
    if "local_rounds" in values:
        rounds = whole_number("local_rounds", values["local_rounds"], at_least=1)
        names = _switch(names, "eager", rounds > 1)
        options |= {"local_rounds": rounds} if rounds > 1 else {}
    served = values.get("served")
    if served not in (None, "last", "average"):
        raise ParameterError(f"served must be 'last' or 'average', got {shown(served)}")
    if served is not None:
        names = _switch(names, "average", served == "average")
    return "+".join(names)


def _switch(names: list[str], wrapper: str, wanted: bool) -> list[str]:
    others = [name for name in names if name != wrapper]
    return names if wanted and wrapper in names else [*others, *([wrapper] if wanted else [])]


def weighted_mean(options: dict[str, Any]) -> str:
    """Return the rule that ``async`` stands for: the weighting, taken out of the options."""
    return str(options.pop("weighting", "renorm"))
