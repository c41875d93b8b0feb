"""Training results: what the rounds left behind, in a file and in a summary."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from freshband._sealed import save_sealed
from freshband.errors import FileError, ParameterError
from freshband.federated.records import RoundRecord
from freshband.federated.result import (
    _read_settings,
    collect_records,
    load_training,
    measure_training,
    save_training,
    summarise_training,
)
from freshband.federated.settings import Training
from tests.federated.recording import ACCURACY, AGES, DELIVERED, make_record, make_records
from tests.simulation.refusing import refused

SETTINGS = Training(clients=3, rounds=4, scheduler="glr-cucb", matching="age", device="cpu")


@pytest.fixture
def result() -> xr.Dataset:
    return collect_records(make_records(), SETTINGS)


def test_every_field_is_there_with_its_dimensions(result: xr.Dataset) -> None:
    names = {field.name for field in dataclasses.fields(RoundRecord)}
    names -= {"expected_ages", "present"}  # which only some fleets have
    assert set(result) | {"round"} == names | {"round", "cumulative_variance", "participation"}
    for name in names - {"round"}:
        own = [record._get(name) for record in make_records()]
        np.testing.assert_array_equal(result[name].values, np.array(own))
    assert result.channel_means.dims == ("round", "channel")
    assert result.ages.dims == result.delivered.dims == ("round", "client")
    assert result.accuracy.dims == result.cumulative_variance.dims == ("round",)
    assert result["round"].values.tolist() == [1, 2, 3, 4]
    assert dict(result.sizes) == {"round": 4, "client": 3, "channel": 5}


def test_what_is_added(result: xr.Dataset) -> None:
    variance = np.array(AGES).var(axis=1)
    np.testing.assert_allclose(result.cumulative_variance.values, variance.cumsum())
    assert result.participation.values.tolist() == [0.5, 0.25, 0.75]


def test_as_many_channels_as_clients_are_no_trouble() -> None:
    square = [make_record(t, channel_means=np.zeros(3)) for t in (1, 2)]
    found = collect_records(square, SETTINGS)
    assert found.channel_means.dims == ("round", "channel")
    assert found.ages.dims == ("round", "client")


def test_attributes_tell_how_to_run_it_again(result: xr.Dataset) -> None:
    assert result.attrs["format"] == "freshband training 1"
    assert json.loads(result.attrs["config"]) == SETTINGS.model_dump(mode="json")
    assert _read_settings(result) == SETTINGS
    assert {"python", "numpy", "torch"} <= set(json.loads(result.attrs["versions"]))
    assert result.attrs["device"] == "cpu"
    assert result.attrs["seconds"] == 1.0
    assert collect_records(make_records(), SETTINGS, 7.5, device="tpu").attrs["seconds"] == 7.5
    assert collect_records(make_records(), SETTINGS, 7.5, device="tpu").attrs["device"] == "tpu"


def test_measures_by_hand(result: xr.Dataset) -> None:
    found = {name: array.item() for name, array in measure_training(result).items()}
    delivered = np.array(DELIVERED)
    assert found["final_accuracy"] == 0.6
    assert found["best_accuracy"] == 0.7
    assert found["best_round"] == 2
    assert found["mean_accuracy"] == pytest.approx(np.nanmean(ACCURACY))
    assert found["final_loss"] == 0.25
    assert found["accuracy_spread"] == pytest.approx(0.4)
    assert found["mean_age"] == np.mean(AGES)
    assert found["max_age"] == 3
    assert found["cumulative_variance"] == pytest.approx(np.array(AGES).var(axis=1).sum())
    assert found["jain"] == pytest.approx(36 / (3 * (4 + 1 + 9)))
    assert found["delivered"] == delivered.sum()
    assert found["mean_staleness"] == pytest.approx((2 * 0 + 1 * 1 + 3 * 2) / 6)
    assert (found["refused"], found["alarms"]) == (1, 1)
    assert (found["trained"], found["bytes_up"], found["bytes_down"]) == (9, 1200, 1000)


def test_measures_of_several_runs_are_those_of_each(result: xr.Dataset) -> None:
    other = collect_records([make_record(t, accuracy=0.1) for t in (1, 2, 3, 4)], SETTINGS)
    both = measure_training(xr.concat([result, other], "run", combine_attrs="drop"))
    for at, one in enumerate((result, other)):
        for name, array in measure_training(one).items():
            assert both[name].dims == ("run",)
            assert both[name].isel(run=at).item() == pytest.approx(array.item())


def test_a_run_cut_short_tells_its_last_look() -> None:
    short = measure_training(collect_records(make_records(3), SETTINGS))
    assert short.final_accuracy.item() == 0.7
    assert short.final_loss.item() == 0.5


def test_the_summary_is_plain_json(result: xr.Dataset) -> None:
    found = json.loads(json.dumps(summarise_training(result), allow_nan=False))
    assert found["final_accuracy"] == 0.6
    assert found["best_round"] == 2
    assert isinstance(found["best_round"], int)
    assert found["policy"] == "glr-cucb+age"
    assert found["participation"] == [0.5, 0.25, 0.75]
    assert found["kept_out"] == []
    assert found["client_accuracy"] == pytest.approx([0.4, 0.8, 1.2])
    assert found["rounds_per_second"] == 4.0
    assert Training(**found["config"]) == SETTINGS


def test_nobody_looked() -> None:
    blind = make_record(3)
    found = summarise_training(collect_records([blind], SETTINGS))
    json.dumps(found, allow_nan=False)
    for name in ("final_accuracy", "best_accuracy", "best_round", "final_loss", "client_accuracy"):
        assert found[name] is None


# ------------------------------------------------------------------------------------------ files


def test_a_result_survives_its_file(result: xr.Dataset, tmp_path: Path) -> None:
    save_training(result, tmp_path / "new" / "result.nc")
    again = load_training(tmp_path / "new" / "result.nc")
    xr.testing.assert_identical(again, result)
    for name, array in result.items():
        assert again[name].dtype == array.dtype


def test_damage_is_found(result: xr.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    save_training(result, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with refused(FileError, "result.nc is damaged: its checksum does not match"):
        load_training(path)


def test_other_results_are_refused(result: xr.Dataset, tmp_path: Path) -> None:
    simulated = xr.Dataset(attrs={"format": "freshband simulation 1"})
    save_sealed(simulated, tmp_path / "simulated.nc")
    with refused(FileError, "must have the format 'freshband training 1', got 'freshband simul"):
        load_training(tmp_path / "simulated.nc")
    message = "result must come from collect_records or load_training, got "
    for other in (None, xr.Dataset(), simulated):
        bad: Any = other
        for use in (lambda it: save_training(it, tmp_path / "x.nc"), summarise_training):
            with refused(ParameterError, message):
                use(bad)
    assert not (tmp_path / "x.nc").exists()


def test_no_records_are_refused() -> None:
    with refused(ParameterError, "records must hold at least one round, got none"):
        collect_records([], SETTINGS)
