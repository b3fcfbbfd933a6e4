"""Names by model and profile: what a pattern matches, when the section counts, and that nothing is offered twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sharing.gpus import gpu, inventory

from windlass.model.errors import InputError
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import resolve_config
from windlass.sharing.resource_names import NamePattern

MODELS = inventory(gpu("H200", 0), gpu("T4", 1), gpu("H100", 2))
BY_MODEL = {"resources": {"gpus": [{"pattern": "*H200*", "name": "gpu-big"}, {"pattern": "Tesla *", "name": "t4"}]}}


def counts(found: Inventory, file: Any, **settings: Any) -> dict[str, int]:
    config = resolve_config(file, **settings)
    return {resource.name: len(resource.devices) for resource in advertised_resources(found, config)}


class TestPatterns:
    @pytest.mark.parametrize("text", ["1g.18gb", "2g.35gb-me", "1g.24gb+me.all", "4g.96gb+gfx", "NVIDIA H200"])
    def test_a_word_matches_itself_and_nothing_longer(self, text: str) -> None:
        kind = NamePattern(text, "nvidia.com/x")
        assert kind.matches(text)
        for other in (
            f"{text}+me",
            f"{text}-me",
            f"{text}+gfx",
            f"x{text}",
            text[:-1],
            text.replace(".", "x", 1),
        ):
            assert kind.matches(other) == (other == text)

    @pytest.mark.parametrize(
        ("pattern", "matching", "others"),
        [
            ("*", ["", "1g.18gb", "NVIDIA H200"], []),
            ("1g.*", ["1g.18gb", "1g.18gb+me"], ["2g.35gb", "11g.18gb"]),
            ("*gb", ["1g.18gb", "7g.141gb"], ["1g.18gb-me", "1g.18gb+me"]),
            ("*H*0*", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"], ["NVIDIA L4"]),
            ("1g.18gb+*", ["1g.18gb+me", "1g.18gb+gfx"], ["1g.18gb", "1g.18gb-me", "1g.18gbb+me"]),
        ],
    )
    def test_a_star_stands_for_anything(self, pattern: str, matching: list[str], others: list[str]) -> None:
        kind = NamePattern(pattern, "nvidia.com/x")
        assert all(kind.matches(text) for text in matching)
        assert not any(kind.matches(text) for text in others)

    @given(st.text("a1.*+g-", max_size=8), st.text("a1.+g-", max_size=8))
    def test_as_one_would_match_by_hand(self, pattern: str, text: str) -> None:
        def by_hand(pattern: str, text: str) -> bool:
            if not pattern:
                return not text
            if pattern[0] == "*":
                return any(by_hand(pattern[1:], text[at:]) for at in range(len(text) + 1))
            return text[:1] == pattern[0] and by_hand(pattern[1:], text[1:])

        assert NamePattern(pattern, "x").matches(text) == by_hand(pattern, text)


class TestSection:
    def test_it_is_ignored_aloud_as_the_original_does(self) -> None:
        assert counts(MODELS, BY_MODEL) == {"nvidia.com/gpu": 3}
        assert any("--honor-renames" in warning for warning in resolve_config(BY_MODEL).warnings)

    def test_honoured_each_model_has_its_name_and_the_rest_the_usual_one(self) -> None:
        assert counts(MODELS, BY_MODEL, honor_renames=True) == {
            "nvidia.com/gpu": 1,
            "nvidia.com/gpu-big": 1,
            "nvidia.com/t4": 1,
        }
        assert not resolve_config(BY_MODEL, honor_renames=True).warnings

    def test_sharing_speaks_of_the_new_name(self) -> None:
        shared = {"timeSlicing": {"resources": [{"name": "gpu-big", "replicas": 4}]}}
        found = counts(MODELS, {**BY_MODEL, "sharing": shared}, honor_renames=True)
        assert found["nvidia.com/gpu-big"] == 4
        assert found["nvidia.com/gpu"] == 1

    def test_instances_by_profile_and_the_first_match_counts(self) -> None:
        cut = inventory(gpu("H200", 0, [("1g.18gb", 0), ("1g.18gb+me", 1), ("2g.35gb", 2)]))
        names = [{"pattern": "1g.18gb+me", "name": "media"}, {"pattern": "1g.*", "name": "small"}]
        file = {"flags": {"migStrategy": "mixed"}, "resources": {"mig": names}}
        assert counts(cut, file, honor_renames=True) == {
            "nvidia.com/media": 1,
            "nvidia.com/mig-2g.35gb": 1,
            "nvidia.com/small": 1,
        }

    @pytest.mark.parametrize(
        ("section", "path"),
        [
            ([], "resources"),
            ({"gpus": {}}, "resources.gpus"),
            ({"gpus": ["*"]}, "resources.gpus[0]"),
            ({"gpus": [{"name": "gpu"}]}, "resources.gpus[0].pattern"),
            ({"gpus": [{"pattern": "*"}]}, "resources.gpus[0].name"),
            (
                {"mig": [{"pattern": "*", "name": "a"}, {"pattern": "*", "name": "No!"}]},
                "resources.mig[1].name",
            ),
            ({"mig": [{"pattern": "*", "name": "a" * 60}]}, "resources.mig[0].name"),
        ],
    )
    @pytest.mark.parametrize("honor_renames", [False, True])
    def test_a_wrong_entry_is_refused_whether_it_counts_or_not(
        self, section: Any, path: str, honor_renames: bool
    ) -> None:
        with pytest.raises(InputError) as refused:
            resolve_config({"resources": section}, honor_renames=honor_renames)
        assert refused.value.path == path


cuts = st.sampled_from([None, [], [("1g.18gb", 0)], [("1g.18gb", 0), ("2g.35gb", 2)], [("3g.71gb", 0), ("3g.71gb", 4)]])
entries = st.fixed_dictionaries(
    {"name": st.sampled_from(["gpu", "mig-1g.18gb", "mig-3g.71gb"]), "replicas": st.integers(2, 4)},
    optional={
        "rename": st.sampled_from(["gpu.shared", "other"]),
        "devices": st.sampled_from([1, [0], [1], ["0:0"], "all"]),
    },
)


@given(
    st.lists(cuts, min_size=1, max_size=3),
    st.sampled_from(["none", "single", "mixed"]),
    st.lists(entries, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_no_hardware_is_offered_twice(
    layouts: list[Any], strategy: str, shared: list[dict[str, Any]], rename: bool, honor_renames: bool
) -> None:
    """Whatever the configuration: a device belongs to one resource, and never is a GPU whole and in parts."""
    found = inventory(*(gpu("H200", at, layout) for at, layout in enumerate(layouts)))
    file: dict[str, Any] = {"flags": {"migStrategy": strategy}}
    if shared:
        file["sharing"] = {"timeSlicing": {"renameByDefault": rename, "resources": shared}}
    try:
        resources = advertised_resources(found, resolve_config(file, honor_renames=honor_renames))
    except InputError:
        return  # refused, so nothing is offered
    names: dict[str, set[str]] = {}
    for resource in resources:
        for device in resource.devices:
            names.setdefault(device.uuid, set()).add(resource.name)
    assert all(len(each) == 1 for each in names.values())
    ids = [device.id for resource in resources for device in resource.devices]
    assert len(ids) == len(set(ids))
    for each in found.gpus:
        assert not (each.uuid in names and any(part.uuid in names for part in each.instances))
    for resource in resources:
        held: dict[str, int] = {}
        for device in resource.devices:
            held[device.uuid] = held.get(device.uuid, 0) + 1
        assert resource.is_shared or set(held.values()) <= {1}, "a whole device is there once"
