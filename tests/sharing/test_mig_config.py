"""mig-parted's config: what it means, and what is refused with which path."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sharing.gpus import gpu
from tests.sharing.layouts import is_legal_layout

from windlass.model.errors import InputError
from windlass.sharing.mig_config import entry_for_gpu, generated_configs, read_mig_configs, select_config

ENTRY = ["mig-configs", "custom", 1]
GOOD: dict[str, Any] = {
    "version": "v1",
    "mig-configs": {
        "all-disabled": [{"devices": "all", "mig-enabled": False}],
        "custom": [
            {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.18gb": 7}},
            {
                "device-filter": ["0x233510DE"],
                "devices": [0],
                "mig-enabled": True,
                "mig-devices": {"3g.71gb": 2},
            },
        ],
    },
}


def changed(path: list[Any], value: Any) -> Any:
    """A copy with one place changed; `...` takes it away."""
    return _set(GOOD, path, value)


def _set(tree: Any, path: list[Any], value: Any) -> Any:
    head, *rest = path
    copy = list(tree) if isinstance(tree, list) else dict(tree)
    if not rest and value is ...:
        del copy[head]
    else:
        copy[head] = _set(copy[head], rest, value) if rest else value
    return copy


class TestMeaning:
    def test_later_entries_override_earlier_ones(self) -> None:
        entries = select_config(read_mig_configs(GOOD), "custom")
        first, second = entry_for_gpu(gpu("H200", 0), entries), entry_for_gpu(gpu("H200", 1), entries)
        assert first is not None
        assert first.wanted == {"3g.71gb": 2}
        assert second is not None
        assert second.wanted == {"1g.18gb": 7}

    def test_a_filter_keeps_other_models_out(self) -> None:
        entry = read_mig_configs(GOOD)["custom"][1]
        assert entry.matches(gpu("H200", 0))
        assert not entry.matches(gpu("H100", 0))

    def test_a_gpu_that_nothing_names_is_left_alone(self) -> None:
        assert entry_for_gpu(gpu("H200", 5), [read_mig_configs(GOOD)["custom"][1]]) is None

    def test_a_name_that_is_not_there_says_what_is(self) -> None:
        with pytest.raises(InputError, match="all-disabled, custom"):
            select_config(read_mig_configs(GOOD), "other")

    @pytest.mark.parametrize("model", ["A30", "A100-40", "H100", "H200"])
    def test_what_is_shipped_can_be_cut(self, model: str) -> None:
        card = gpu(model)
        configs = generated_configs([card])
        assert {"all-disabled", "all-enabled", "all-balanced"} < set(configs)
        for entries in configs.values():
            entry = entry_for_gpu(card, entries)
            assert entry is not None
            profiles = [name for name, count in entry.wanted.items() for _ in range(count)]
            assert is_legal_layout(card.name.replace(" ", "-"), profiles)

    @pytest.mark.parametrize(
        ("model", "wanted"),
        [
            ("A30", {"1g.6gb": 2, "2g.12gb": 1}),
            ("A100-40", {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}),
            ("A100-80", {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
            ("H100", {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}),
            ("H100-94", {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1}),
            ("H100-96", {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1}),
            ("H200", {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}),
            ("B200", {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1}),
            ("GH200-144", {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1}),
            ("GB200", {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1}),
            ("GB200-189", {"1g.24gb": 2, "2g.47gb": 1, "3g.95gb": 1}),
            ("B300", {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1}),
            ("GB300", {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1}),
        ],
    )
    def test_balanced_is_nvidias(self, model: str, wanted: dict[str, int]) -> None:
        (entry,) = generated_configs([gpu(model)])["all-balanced"]
        assert entry.wanted == wanted

    @pytest.mark.parametrize(
        ("model", "most"),
        [
            ("A30", {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1}),
            (
                "A100-40",
                {"1g.5gb": 7, "1g.5gb+me": 1, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1},
            ),
            ("H100", {"1g.10gb": 7, "1g.10gb+me": 1, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "7g.80gb": 1}),
            ("H200", {"1g.18gb": 7, "1g.35gb": 4, "2g.35gb": 3, "3g.71gb": 2, "4g.71gb": 1, "7g.141gb": 1}),
            ("B200", {"1g.23gb": 7, "1g.45gb": 4, "2g.45gb": 3, "3g.90gb": 2, "4g.90gb": 1, "7g.180gb": 1}),
            ("GB200", {"1g.23gb": 7, "1g.47gb": 4, "2g.47gb": 3, "3g.93gb": 2, "4g.93gb": 1, "7g.186gb": 1}),
            ("B300", {"1g.34gb": 7, "1g.67gb": 4, "2g.67gb": 3, "3g.135gb": 2, "4g.135gb": 1, "7g.269gb": 1}),
            (
                "GB300",
                {"1g.35gb": 7, "1g.70gb": 4, "2g.70gb": 3, "3g.139gb": 2, "4g.139gb": 1, "7g.278gb": 1},
            ),
        ],
    )
    def test_each_profile_as_often_as_it_goes_in(self, model: str, most: dict[str, int]) -> None:
        configs = generated_configs([gpu(model)])
        for profile, count in most.items():
            (entry,) = configs[f"all-{profile.replace('+', '.')}"]
            assert entry.wanted == {profile: count}

    @pytest.mark.parametrize("model", ["A30", "H200"])
    def test_every_name_can_be_the_value_of_a_label(self, model: str) -> None:
        for name in generated_configs([gpu(model)]):
            assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", name)

    def test_two_models_in_one_node_have_an_entry_each(self) -> None:
        big, small = gpu("H100", 0), gpu("A30", 1)
        configs = generated_configs([big, small])
        for card, wanted in ((big, {"1g.10gb": 7}), (small, {"1g.6gb": 4})):
            entries = configs["all-" + next(iter(wanted))]
            entry = entry_for_gpu(card, entries)
            assert entry is not None
            assert entry.wanted == wanted
        assert entry_for_gpu(small, configs["all-1g.10gb"]) is None, "left alone"
        balanced = {card.name: entry_for_gpu(card, configs["all-balanced"]) for card in (big, small)}
        assert len({str(entry) for entry in balanced.values()}) == 2

    def test_all_enabled_cuts_nothing(self) -> None:
        (entry,) = generated_configs([gpu("H200")])["all-enabled"]
        assert (entry.enabled, entry.wanted) == (True, {})


class TestFilters:
    """A filter names the chip, or the chip on one board."""

    H100 = gpu("H100", subsystem_id="0x16C010DE")

    @pytest.mark.parametrize(
        ("words", "matches"),
        [
            ("", True),
            ([], True),
            ("0x233010DE", True),
            ("0x233010de", True),
            ("0x233010DE:0x16C010DE", True),
            ("0x233010DE:0x16C110DE", False),
            ("0x233510DE:0x16C010DE", False),
            (["0x233010DE:0x16C110DE", "0x233010DE:0x16c010de"], True),
            (["0x233510DE", "0x20B710DE"], False),
        ],
    )
    def test_by_chip_and_by_board(self, words: Any, matches: bool) -> None:
        configs = read_mig_configs(changed([*ENTRY, "device-filter"], words))
        assert configs["custom"][1].matches(self.H100) is matches

    def test_a_board_that_nobody_knows_is_matched_by_its_chip_alone(self) -> None:
        configs = read_mig_configs(changed([*ENTRY, "device-filter"], "0x233010DE:0x16C010DE"))
        assert not configs["custom"][1].matches(gpu("H100"))
        zero = read_mig_configs(changed([*ENTRY, "device-filter"], "0x233010DE:0x00000000"))
        assert zero["custom"][1].matches(gpu("H100"))


class TestSparseFiles:
    @pytest.mark.parametrize("raw", [None, {"version": "v1"}])
    def test_a_file_without_layouts_has_none(self, raw: Any) -> None:
        assert read_mig_configs(raw) == {}

    def test_no_instances_at_all_are_written_as_an_empty_map(self) -> None:
        entry = read_mig_configs(changed([*ENTRY, "mig-devices"], {}))["custom"][1]
        assert (entry.enabled, entry.wanted) == (True, {})

    def test_a_zero_among_others_asks_for_nothing(self) -> None:
        wanted = {"1g.18gb": 0, "3g.71gb": 2}
        entry = read_mig_configs(changed([*ENTRY, "mig-devices"], wanted))["custom"][1]
        assert entry.wanted == {"3g.71gb": 2}


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "value", "where"),
        [
            (["version"], ..., "version"),
            (["version"], "v2", "version"),
            (["unknown"], 1, "unknown"),
            (["mig-configs"], [], "mig-configs"),
            (["mig-configs"], {}, "mig-configs"),
            (["mig-configs", "custom"], [], "mig-configs.custom"),
            ([*ENTRY, "mig-devices"], ..., "mig-configs.custom[1].mig-devices"),
            ([*ENTRY, "mig-devices"], {"3g.71gb": 0}, "mig-configs.custom[1].mig-devices"),
            ([*ENTRY, "mig-devices"], {"3g.71gb": -1}, "mig-configs.custom[1].mig-devices.3g.71gb"),
            ([*ENTRY, "mig-devices"], {"bogus": 0}, "mig-configs.custom[1].mig-devices"),
            ([*ENTRY, "devices"], {}, "mig-configs.custom[1].devices"),
            ([*ENTRY, "device-filter"], "A100-SXM4-40GB", "mig-configs.custom[1].device-filter"),
            ([*ENTRY, "device-filter"], "0x233010DE:0x16C010DE:x", "mig-configs.custom[1].device-filter"),
            ([*ENTRY, "devices"], ..., "mig-configs.custom[1].devices"),
            ([*ENTRY, "mig-enabled"], ..., "mig-configs.custom[1].mig-enabled"),
            ([*ENTRY, "mig-enabled"], "yes", "mig-configs.custom[1].mig-enabled"),
            ([*ENTRY, "mig-enabled"], False, "mig-configs.custom[1].mig-devices"),
            ([*ENTRY, "devices"], "some", "mig-configs.custom[1].devices"),
            ([*ENTRY, "devices"], [-1], "mig-configs.custom[1].devices"),
            ([*ENTRY, "device-filter"], "233510DE", "mig-configs.custom[1].device-filter"),
            ([*ENTRY, "mig-device"], {}, "mig-configs.custom[1].mig-device"),
            ([*ENTRY, "mig-devices"], {"3g": 1}, "mig-configs.custom[1].mig-devices"),
            ([*ENTRY, "mig-devices"], {"1c.3g.71gb": 1}, "mig-configs.custom[1].mig-devices.1c.3g.71gb"),
            ([*ENTRY, "mig-devices"], {"3g.71gb": "2"}, "mig-configs.custom[1].mig-devices.3g.71gb"),
        ],
    )
    def test_names_the_field(self, path: list[Any], value: Any, where: str) -> None:
        with pytest.raises(InputError) as refused:
            read_mig_configs(changed(path, value), "mig.yaml")
        assert refused.value.path == where
        assert refused.value.file == "mig.yaml"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLACES: list[list[Any]] = [
    ["version"],
    ["mig-configs"],
    ["mig-configs", "custom"],
    ENTRY,
    *([*ENTRY, field] for field in ("device-filter", "devices", "mig-enabled", "mig-devices")),
    [*ENTRY, "mig-devices", "3g.71gb"],
]
JUNK: list[Any] = [
    None,
    True,
    0,
    5,
    -1,
    10**30,
    1.5,
    float("nan"),
    "",
    "x",
    "²",
    "all",
    b"x",
    [],
    [[]],
    [None],
]
JUNK += [[0], [True], ["x"], [{}], {}, {"x": 1}, {0: 0}, {None: None}, {"1g.18gb": True}, {"1g.18gb": 10**9}]


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_junk_in_one_place_is_read_or_refused(path: list[Any]) -> None:
    for value in JUNK:
        with contextlib.suppress(InputError):
            read_mig_configs(changed(path, value))
    for value in JUNK:
        with contextlib.suppress(InputError):
            read_mig_configs(value)


@given(st.sampled_from(PLACES), values)
def test_a_mutated_file_is_read_or_refused(path: list[Any], value: Any) -> None:
    with contextlib.suppress(InputError):
        read_mig_configs(changed(path, value))
