"""What ``train`` and ``compare`` share: how the settings of a run are put together."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from freshband._plugins import made_with
from freshband.cli._settings import read_setting, read_toml, tell_notes
from freshband.errors import FreshbandError, ParameterError, UnknownNameError, nearest, shown

if TYPE_CHECKING:
    import xarray as xr

    from freshband.federated.settings import Training

_Saved = TypeVar("_Saved")


# Where the settings keep the options of a thing, by the table that gives them.
_TABLES: Final = {
    "algorithm": "algorithm_options",
    "channels": "channel_options",
    "dataset": "dataset_options",
    "fleet": "fleet",
    "loss": "loss_options",
    "matching": "policy_options",
    "metric": "metric_options",
    "model": "model_options",
    "optimiser": "optimiser_options",
    "partition": "partition_options",
    "policy": "policy_options",
    "valuation": "valuation_options",
}
_SHARED: Final = tuple(name for name in _TABLES if _TABLES[name] != "policy_options")
_PARTNER: Final = {"matching": "policy", "policy": "matching"}  # they share policy_options
_RENAMED: Final = {"scheduler": "policy"}

# What decides which other settings are used.
_DECIDING: Final = {"aggregation", "algorithm", "contribution", "matching", "policy", "weights"}


def _of_fleets() -> set[str]:
    """Return what can be set of a fleet without naming it; ``weights`` are those of updates."""
    from freshband.federated.settings import Training
    from freshband.fleet.conditions import SimulatedFleet

    return set(SimulatedFleet.model_fields) - set(Training.model_fields)


class Layer:
    """Settings from one source: plain ones, and options by the name they belong to.

    ``policies`` says whether it names policies to compare.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.fields: dict[str, Any] = {}
        self.options: dict[str, dict[str, Any]] = {}
        self.policies = False

    def put(self, table: str, key: str, value: Any) -> None:
        """Enter a setting, or with a table an option; each only once."""
        from freshband.federated._spelling import OF_ALGORITHMS, OF_VALUATION

        table = _RENAMED.get(table, table)
        if not table:  # by the names of today
            key = _RENAMED.get(key, key)
            table = "algorithm" if key in OF_ALGORITHMS else ""
            table = "valuation" if key in OF_VALUATION else table
            table = "fleet" if key in _of_fleets() else table
        target = self.options.setdefault(table, {}) if table else self.fields
        if key in target:
            raise ParameterError(f"{self.source} gives {f'{table}.{key}'.lstrip('.')!r} twice")
        target[key] = value

    def gives(self, name: str) -> bool:
        """Whether it gives a setting, an option or a wrapper of the algorithm."""
        named = str(self.fields.get("algorithm", "")).split("+")
        named += ["eager"] if "local_rounds" in self.fields else []
        options = [self.options.get(table, {}) for table in ("algorithm", "valuation")]
        return name in self.fields or name in named or any(name in own for own in options)

    def decides(self) -> bool:
        """Whether it decides which settings of earlier layers are used."""
        staleness = "staleness" in self.options.get("algorithm", {})
        return self.policies or staleness or not _DECIDING.isdisjoint(self.fields)


def need_extra() -> None:
    """Say what to install where PyTorch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise FreshbandError(
            "training needs PyTorch; install it with: pip install 'freshband[train]'"
        )


def read_file(path: Path) -> Layer:
    """Read a TOML file: settings by name, and a table for each thing that has options."""
    path = Path(path)  # some versions of typer leave a context's parameters as texts
    layer = Layer(str(path))
    for key, value in read_toml(path).items():
        if not isinstance(value, dict):
            layer.put("", key, value)
        elif key not in {*_TABLES, *_RENAMED}:
            raise UnknownNameError(
                f"{path} has no use for a table [{key}]; {nearest(key, _TABLES)}"
            )
        else:
            for name, option in value.items():
                if name == "name":
                    layer.put("", key, option)
                else:
                    layer.put(key, name, option)
    return layer


def read_like(
    like: Path,
    load: Callable[[Path], xr.Dataset],
    read: Callable[[xr.Dataset, Path, list[str]], _Saved],
) -> tuple[_Saved, dict[str, Any]]:
    """Return what a saved result was made with, and its attributes."""
    path = Path(like)
    result = load(path)
    notes: list[str] = []
    with made_with(path, result.attrs):
        saved = read(result, path.parent, notes)
    tell_notes(notes)
    return saved, result.attrs


def read_sets(settings: Sequence[str], policies: Sequence[str] = ()) -> Layer:
    """Read ``--set``: ``key=value``, ``table.key=value``, and of policies ``POLICY.key=value``."""
    layer = Layer("the command line")
    known = [*_SHARED, *policies] if policies else [*_TABLES, *_RENAMED]
    for setting in settings:
        table, key, value = read_setting(setting, "key=value or TABLE.key=value")
        if table and table not in known:
            raise UnknownNameError(
                f"--set {setting}: {table!r} is unknown; {nearest(table, known)}"
            )
        layer.put(table, key, value)
    return layer


def read_line(
    params: Mapping[str, Any], given: set[str], fields: Sequence[str], policies: Sequence[str] = ()
) -> Layer:
    """Read the command line: its own options and those of ``--set``."""
    layer = read_sets(params["settings"] or [], policies)
    layer.policies = "policies" in given
    for name in fields:
        if name in given:
            layer.put("", name, params[name])
    if params["data_dir"] is not None:
        layer.put("dataset", "data_dir", str(params["data_dir"]))
    return layer


def merge_layers(
    base: Mapping[str, Any],
    layers: Sequence[Layer],
    unused: Callable[[Training], Mapping[str, str]] | None = None,
) -> Training:
    """Return the settings: later layers win over earlier ones and over ``base``, those of a result.

    Options belong to a name: where a later layer names something else they are left behind. So are
    settings that what a later layer names does not use, and those of ``base`` that nothing uses.
    ``unused`` tells settings without effect, `Training.unused` by default; where it is given, those
    that are left are not refused here.
    """
    from freshband.federated._spelling import FORMER
    from freshband.federated.settings import Training

    values = dict(base)
    options = _take_options(values)
    known = {*Training.model_fields, *FORMER}
    for layer in layers:
        for key in layer.fields.keys() - known:
            hint = nearest(key, known | _of_fleets())
            raise UnknownNameError(f"Training has no parameter {key!r}; {hint}")
        for key, value in layer.fields.items():
            if key in _TABLES and key != "algorithm" and value != values.get(key):
                options[key] = {}
            values[key] = value
        for table, own in layer.options.items():
            _leave_to(table, own, layer, options)
            options[table] |= own
    for table, own in options.items():
        if own:
            field = _TABLES[table]
            if not isinstance(values.setdefault(field, {}), dict):
                raise ParameterError(f"{field} must be a table, got {shown(values[field])}")
            values[field] = {**values[field], **own}
    draft = Training.as_stored(values)
    left = set()
    for name in draft.unused() if unused is None else unused(draft):
        given = [at for at, layer in enumerate(layers) if layer.gives(name)]
        later = layers[given[-1] + 1 :] if given else layers
        if not given or any(each.decides() for each in later):
            left.add(name)
    kept = draft.without(left)
    return Training(**kept) if unused is None else Training.as_stored(kept)


def _take_options(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take the options out of saved settings, by the name of what they belong to."""
    from freshband.federated.settings import Training

    options: dict[str, dict[str, Any]] = {table: {} for table in _TABLES}
    if values.get("matching") is not None:  # else it comes and goes with the policy
        rule = type(Training.as_stored(values).build_policy().matching)
        fields = getattr(rule, "model_fields", {})
        saved = values["policy_options"]
        options["matching"] = {key: saved[key] for key in saved if key in fields}
        values["policy_options"] = {key: saved[key] for key in saved if key not in fields}
    for table, field in _TABLES.items():
        if field in values and table != "matching":
            options[table] = dict(values.pop(field))
    return options


def _leave_to(
    table: str, own: Mapping[str, Any], layer: Layer, options: dict[str, dict[str, Any]]
) -> None:
    """Let options of a policy or a matching replace those given under the other's name."""
    partner = _PARTNER.get(table)
    if partner is None:
        return
    for key in own.keys() & layer.options.get(partner, {}).keys():
        raise ParameterError(f"{layer.source} gives {key!r} twice, for {table} and for {partner}")
    options[partner] = {key: value for key, value in options[partner].items() if key not in own}
