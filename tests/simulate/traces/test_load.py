from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.simulate.traces import list_traces, load_trace


def test_catalogue_says_what_is_at_hand(folder: Path) -> None:
    infos = {info.name: info for info in list_traces(folder)}
    assert infos["openb/default"].at_hand
    assert infos["openb/default"].published_orders
    assert not infos["openb-all/default"].published_orders
    assert not infos["openb/cpu250"].at_hand
    assert infos["helios"].at_hand
    assert infos["synthetic/small"].at_hand
    assert len([name for name in infos if name.startswith("openb/")]) == 24


def test_without_a_folder_only_the_synthetic_ones_are_at_hand() -> None:
    infos = list_traces(None)
    assert {info.name.partition("/")[0] for info in infos if info.at_hand} == {"synthetic"}
    assert all(info.source and info.licence and info.description for info in infos)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openb/defualt", "unknown trace 'openb/defualt' .*did you mean openb/default"),
        ("synthetic/smal", "did you mean synthetic/small"),
        ("synthetic/", "unknown trace"),
        ("nothing", "windlass simulate --list"),
        ("", "unknown trace"),
        ("openb/cpu250", "needs openb/openb_pod_list_cpu250.csv .*alibaba/clusterdata"),
        ("missing.csv", "missing.csv: can't be read: No such file"),
        ("folder.csv", "folder.csv: can't be read: Is a directory"),
    ],
)
def test_names_that_lead_nowhere(folder: Path, name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (folder / "folder.csv").mkdir()
    with pytest.raises(InputError, match=message):
        load_trace(name, seed=42, traces_dir=folder)


def test_no_traces_folder() -> None:
    with pytest.raises(InputError, match=r"no folder of them was given \(download them from .*--traces DIR"):
        load_trace("openb/default", seed=42, traces_dir=None)


def test_replay_is_for_openb(folder: Path) -> None:
    for name in ("philly", "synthetic/small", "jobs.csv"):
        with pytest.raises(InputError, match="is for the openb traces"):
            load_trace(name, seed=42, traces_dir=folder, replay="times")


def test_empty_park(folder: Path) -> None:
    with pytest.raises(InputError, match="the fleet is empty"):
        load_trace("openb/default", seed=42, traces_dir=folder, nodes=())


def test_negative_seed(folder: Path) -> None:
    with pytest.raises(InputError, match="a seed is a whole number of 0 or more, got -1"):
        load_trace("openb/default", seed=-1, traces_dir=folder)


FILES = {
    "openb/openb_pod_list_default.csv": "openb/default",
    "openb/openb_node_list_gpu_node.csv": "openb/default",
    "philly/philly_jobs_82k.csv": "philly",
    "helios/helios_last15k.csv": "helios",
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file=st.sampled_from(sorted(FILES)),
    at=st.floats(0, 1),
    cut=st.integers(0, 8),
    put=st.sampled_from(["", ",", "\n", '"', "-1", "9" * 30, "NaN", "\x00", "٣", "|", "\r", "1e9"])
    | st.text(max_size=4),
    replay=st.sampled_from(["arrivals", "times"]),
)
def test_mutated_files_are_read_or_refused(folder: Path, file: str, at: float, cut: int, put: str, replay: str) -> None:
    """Whatever is in a file, the answer is a trace or one `InputError` that names the file."""
    place, name = folder / file, FILES[file]
    good = place.read_bytes()
    start = int(at * len(good))
    place.write_bytes(good[:start] + put.encode("utf-8", "surrogatepass") + good[start + cut :])
    try:
        trace = load_trace(name, seed=3, traces_dir=folder, replay=replay if name == "openb/default" else "arrivals")
        outcome = trace.name
    except InputError as error:
        outcome = f"{error.file}: {error.message}"
    finally:
        place.write_bytes(good)
    assert outcome == name or outcome.startswith(str(folder))


def test_reading_does_not_touch_the_global_generators(folder: Path) -> None:
    before = random.getstate()
    load_trace("openb/default", seed=7, traces_dir=folder)
    load_trace("synthetic/small", seed=7, traces_dir=None)
    assert random.getstate() == before
