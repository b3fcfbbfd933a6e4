"""mig-parted's config: what it means, and what is refused with which path."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sharing.gpus import gpu

from windlass.model.errors import InputError
from windlass.sharing.mig import is_legal_layout
from windlass.sharing.mig_config import generated_configs, layout_for, read_mig_configs, select

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
        entries = select(read_mig_configs(GOOD), "custom")
        first, second = layout_for(gpu("H200", 0), entries), layout_for(gpu("H200", 1), entries)
        assert first is not None
        assert first.wanted == {"3g.71gb": 2}
        assert second is not None
        assert second.wanted == {"1g.18gb": 7}

    def test_a_filter_keeps_other_models_out(self) -> None:
        entry = read_mig_configs(GOOD)["custom"][1]
        assert entry.matches(gpu("H200", 0))
        assert not entry.matches(gpu("H100", 0))

    def test_a_gpu_that_nothing_names_is_left_alone(self) -> None:
        assert layout_for(gpu("H200", 5), [read_mig_configs(GOOD)["custom"][1]]) is None

    def test_a_name_that_is_not_there_says_what_is(self) -> None:
        with pytest.raises(InputError, match="all-disabled, custom"):
            select(read_mig_configs(GOOD), "other")

    @pytest.mark.parametrize("model", ["A30", "A100-40", "H100", "H200"])
    def test_what_is_shipped_can_be_cut(self, model: str) -> None:
        card = gpu(model)
        configs = generated_configs([card])
        assert {"all-disabled", "all-enabled", "all-balanced"} < set(configs)
        for entries in configs.values():
            entry = layout_for(card, entries)
            assert entry is not None
            profiles = [name for name, count in entry.wanted.items() for _ in range(count)]
            assert is_legal_layout(card.name.replace(" ", "-"), profiles)

    def test_balanced_is_nvidias(self) -> None:
        (entry,) = generated_configs([gpu("H200")])["all-balanced"]
        assert entry.wanted == {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1}
        assert generated_configs([gpu("H200")])["all-1g.18gb"][0].wanted == {"1g.18gb": 7}


ENTRY = ["mig-configs", "custom", 1]


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "value", "where"),
        [
            (["version"], ..., "version"),
            (["version"], "v2", "version"),
            (["unknown"], 1, "unknown"),
            (["mig-configs"], [], "mig-configs"),
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
places = st.sampled_from(
    [
        ["version"],
        ["mig-configs"],
        ["mig-configs", "custom"],
        ENTRY,
        *([*ENTRY, field] for field in ("device-filter", "devices", "mig-enabled", "mig-devices")),
        [*ENTRY, "mig-devices", "3g.71gb"],
    ]
)


@given(places, values)
def test_a_mutated_file_is_read_or_refused(path: list[Any], value: Any) -> None:
    with contextlib.suppress(InputError):
        read_mig_configs(changed(path, value))
