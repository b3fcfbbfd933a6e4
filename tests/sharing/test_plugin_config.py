"""NVIDIA's device plugin config: precedence, every field, refusals with paths, and never a crash."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.sharing.plugin_config import PluginConfig, resolve_config
from windlass.sharing.plugin_fields import ALIASES, PLUGIN_FIELDS

ENTRY = {"name": "nvidia.com/gpu", "replicas": 4}


def sliced(**fields: Any) -> dict[str, Any]:
    return {"sharing": {"timeSlicing": {"resources": [ENTRY], **fields}}}


def with_mps(**flags: Any) -> dict[str, Any]:
    return {"flags": {"mpsRoot": "/run/nvidia/mps", **flags}, "sharing": {"mps": {"resources": [ENTRY]}}}


class TestPrecedence:
    def test_flag_over_environment_over_file(self) -> None:
        file = {"flags": {"migStrategy": "single"}}
        environment = {"MIG_STRATEGY": "mixed"}
        assert resolve_config(file).mig_strategy == "single"
        assert resolve_config(file, environment).mig_strategy == "mixed"
        assert resolve_config(file, environment, {"--mig-strategy": "none"}).mig_strategy == "none"

    def test_nothing_gives_the_originals_defaults(self) -> None:
        config = resolve_config()
        assert (config.mig_strategy, config.device_list_strategy) == ("none", ("envvar",))
        assert config.fail_on_init_error
        assert config.sleep_interval == 60
        assert config.output_file == "/etc/kubernetes/node-feature-discovery/features.d/gfd"

    @pytest.mark.parametrize(
        ("variable", "setting", "word", "value"),
        [
            ("MIG_STRATEGY", "mig_strategy", "single", "single"),
            ("GFD_MIG_STRATEGY", "mig_strategy", "mixed", "mixed"),
            ("FAIL_ON_INIT_ERROR", "fail_on_init_error", "false", False),
            ("GFD_FAIL_ON_INIT_ERROR", "fail_on_init_error", "0", False),
            ("GFD_USE_NODE_FEATURE_API", "use_node_feature_api", "false", False),
            ("USE_NODE_FEATURE_API", "use_node_feature_api", "false", False),
            ("GFD_ONESHOT", "oneshot", "true", True),
            ("GFD_NO_TIMESTAMP", "no_timestamp", "true", True),
            ("GFD_SLEEP_INTERVAL", "sleep_interval", "5s", 5.0),
            ("GFD_OUTPUT_FILE", "output_file", "/there", "/there"),
            ("GFD_MACHINE_TYPE_FILE", "machine_type_file", "/there", "/there"),
            ("NVIDIA_CDI_HOOK_PATH", "nvidia_ctk_path", "/there", "/there"),
            ("NVIDIA_CTK_PATH", "nvidia_ctk_path", "/there", "/there"),
            ("DRIVER_ROOT_CTR_PATH", "container_driver_root", "/there", "/there"),
            ("NVIDIA_DEV_ROOT", "nvidia_dev_root", "/there", "/there"),
            ("MPS_ROOT", "mps_root", "/there", "/there"),
            ("PASS_DEVICE_SPECS", "pass_device_specs", "true", True),
            ("DEVICE_LIST_STRATEGY", "device_list_strategy", "cdi-cri,envvar", ("cdi-cri", "envvar")),
            ("DEVICE_ID_STRATEGY", "device_id_strategy", "index", "index"),
            ("IMEX_CHANNEL_IDS", "imex_channel_ids", "0", (0,)),
            ("IMEX_REQUIRED", "imex_required", "true", True),
            ("GDRCOPY_ENABLED", "gdrcopy_enabled", "true", True),
        ],
    )
    def test_variables_have_the_originals_names(self, variable: str, setting: str, word: str, value: object) -> None:
        assert getattr(resolve_config(None, {variable: word}), setting) == value

    @pytest.mark.parametrize("variable", ["ONESHOT", "OUTPUT_FILE", "SLEEP_INTERVAL"])
    def test_other_peoples_variables_are_not_taken_for_ours(self, variable: str) -> None:
        assert resolve_config(None, {variable: "1s"}) == resolve_config()

    @pytest.mark.parametrize("alias", sorted(ALIASES))
    def test_newer_names_of_flags_are_taken(self, alias: str) -> None:
        field = ALIASES[alias].removeprefix("--").replace("-", "_")
        assert getattr(resolve_config(flags={alias: "/there"}), field) == "/there"

    @pytest.mark.parametrize("field", PLUGIN_FIELDS, ids=lambda field: field.path)
    def test_every_field_of_the_file_is_known_here(self, field: Any) -> None:
        assert hasattr(PluginConfig(), field.flag.removeprefix("--").replace("-", "_"))
        tree: Any = field.default if not isinstance(field.default, tuple) else list(field.default)
        for part in reversed(field.path.split(".")):
            tree = {part: tree}
        assert resolve_config(tree).warnings == ()

    @pytest.mark.parametrize(
        ("raw", "strategies"),
        [
            ("cdi-cri", ("cdi-cri",)),
            ("envvar,cdi-cri", ("envvar", "cdi-cri")),
            (["volume-mounts", "cdi-annotations"], ("volume-mounts", "cdi-annotations")),
        ],
    )
    def test_strategies_come_as_a_word_or_a_list(self, raw: Any, strategies: tuple[str, ...]) -> None:
        config = resolve_config({"flags": {"plugin": {"deviceListStrategy": raw}}})
        assert config.device_list_strategy == strategies

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("60s", 60), ("1m30s", 90), ("infinite", -1), ("250ms", 0.25), ("0s", 0), (0, 0), (5, 5e-9)],
    )
    def test_durations_are_gos(self, text: str | int, seconds: float) -> None:
        assert resolve_config({"flags": {"gfd": {"sleepInterval": text}}}).sleep_interval == seconds


class TestSharing:
    def test_time_slicing(self) -> None:
        config = resolve_config(sliced())
        assert config.sharing_strategy == "time-slicing"
        assert config.sharing is not None
        assert not config.sharing.fail_requests_greater_than_one

    def test_mps_fails_requests_above_one_by_default(self) -> None:
        config = resolve_config(with_mps())
        assert config.sharing is not None
        assert config.sharing.fail_requests_greater_than_one

    def test_mps_can_be_told_not_to(self) -> None:
        file = with_mps()
        file["sharing"]["mps"]["failRequestsGreaterThanOne"] = False
        config = resolve_config(file)
        assert config.sharing is not None
        assert not config.sharing.fail_requests_greater_than_one

    @pytest.mark.parametrize("raw", [None, [], [0], "0", ""])
    def test_the_one_channel_of_imex_or_none(self, raw: Any) -> None:
        assert resolve_config({"imex": {"channelIDs": raw}}).imex_channel_ids in ((), (0,))

    @pytest.mark.parametrize("raw", [[1], [2], [0, 1], [True], "1", {"0": 0}])
    def test_other_channels_are_refused(self, raw: Any) -> None:
        with pytest.raises(InputError) as refused:
            resolve_config({"imex": {"channelIDs": raw}})
        assert refused.value.path == "imex.channelIDs"

    @pytest.mark.parametrize("raw", ["distributed", "packed"])
    def test_the_policy_for_shares(self, raw: str) -> None:
        file = {"flags": {"plugin": {"sharedDevicesAllocationPolicy": raw}}}
        assert resolve_config(file).shared_devices_allocation_policy == raw
        assert resolve_config(None, {"SHARED_DEVICES_ALLOCATION_POLICY": raw}).shared_devices_allocation_policy == raw
        assert resolve_config().shared_devices_allocation_policy == "distributed"

    def test_an_unknown_policy_is_refused(self) -> None:
        with pytest.raises(InputError, match="distributed, packed"):
            resolve_config(flags={"--shared-devices-allocation-policy": "no-such-policy"})

    def test_mps_wins_and_says_so(self) -> None:
        both = with_mps()
        both["sharing"]["timeSlicing"] = {"resources": [ENTRY]}
        config = resolve_config(both)
        assert config.sharing_strategy == "mps"
        assert any("can't coexist" in warning for warning in config.warnings)

    @pytest.mark.parametrize(("replicas", "warned"), [(64, False), (10_000, True)])
    def test_so_many_shares_are_warned_of(self, replicas: int, warned: bool) -> None:
        config = resolve_config(sliced(resources=[{**ENTRY, "replicas": replicas}]))
        assert any("resources[0].replicas" in warning for warning in config.warnings) is warned

    def test_rename_by_default(self) -> None:
        config = resolve_config(sliced(renameByDefault=True))
        assert config.sharing is not None
        assert config.sharing.resources[0].shared_name == "nvidia.com/gpu.shared"

    def test_renames_are_dropped_aloud_unless_honoured(self) -> None:
        file = sliced(resources=[{**ENTRY, "rename": "gpu-slice", "devices": [0, "1:2"]}])
        dropped, kept = resolve_config(file), resolve_config(file, honor_renames=True)
        assert any("--honor-renames" in warning for warning in dropped.warnings)
        assert dropped.sharing is not None
        assert dropped.sharing.resources[0].shared_name == "nvidia.com/gpu"
        assert kept.sharing is not None
        assert kept.sharing.resources[0].shared_name == "nvidia.com/gpu-slice"
        assert kept.sharing.resources[0].devices == ("0", "1:2")

    def test_a_field_in_the_wrong_place_is_ignored_with_a_hint(self) -> None:
        config = resolve_config({"sharing": {"renameByDefault": True, "timeSlicing": {"resources": [ENTRY]}}})
        (warning,) = config.warnings
        assert "sharing.renameByDefault" in warning
        assert "sharing.timeSlicing.renameByDefault" in warning


class TestRefusals:
    @pytest.mark.parametrize(
        ("file", "path", "words"),
        [
            ({"version": "v2"}, "version", "unknown version"),
            ([], "", "must be a map"),
            ({"flags": []}, "flags", "must be a map"),
            ({"flags": {"migStrategy": "some"}}, "flags.migStrategy", "none, single, mixed"),
            ({"flags": {"failOnInitError": "maybe"}}, "flags.failOnInitError", "neither true nor false"),
            (
                {"flags": {"plugin": {"deviceListStrategy": ["envvar", "x"]}}},
                "flags.plugin.deviceListStrategy[1]",
                "unknown value",
            ),
            (
                {"flags": {"plugin": {"deviceIDStrategy": "name"}}},
                "flags.plugin.deviceIDStrategy",
                "uuid, index",
            ),
            ({"flags": {"gfd": {"sleepInterval": "soon"}}}, "flags.gfd.sleepInterval", "not a duration"),
            ({"imex": {"channelIDs": [1]}}, "imex.channelIDs", "only channel 0"),
            ({"sharing": {"timeSlicing": {}}}, "sharing.timeSlicing.resources", "no resources specified"),
            (
                sliced(resources=[{"name": "nvidia.com/gpu", "replicas": 1}]),
                "sharing.timeSlicing.resources[0].replicas",
                "must be >= 2",
            ),
            (sliced(resources=[{"replicas": 2}]), "sharing.timeSlicing.resources[0].name", "is required"),
            (
                sliced(resources=[{**ENTRY, "devices": ["GPU-1"]}]),
                "sharing.timeSlicing.resources[0].devices[0]",
                "not a device",
            ),
            (with_mps(migStrategy="mixed"), "sharing.mps", "mig-strategy=mixed is not supported with MPS"),
            (
                {
                    "flags": {"mpsRoot": "/m"},
                    "sharing": {"mps": {"resources": [{"name": "nvidia.com/mig-1g.10gb", "replicas": 2}]}},
                },
                "sharing.mps.resources[0].name",
                "not supported for MIG devices",
            ),
            ({"sharing": {"mps": {"resources": [ENTRY]}}}, "flags.mpsRoot", "MPS needs a folder"),
            ({"flags": {"deviceDiscoveryStrategy": "tegra"}}, "flags.deviceDiscoveryStrategy", "Tegra"),
        ],
    )
    def test_names_the_field_and_the_reason(self, file: Any, path: str, words: str) -> None:
        with pytest.raises(InputError) as refused:
            resolve_config(file)
        assert refused.value.path == path
        assert words in str(refused.value)

    def test_a_wrong_variable_is_named_as_one(self) -> None:
        with pytest.raises(InputError) as refused:
            resolve_config(None, {"MIG_STRATEGY": "some"})
        assert refused.value.path == "MIG_STRATEGY"


class TestWhatTheOriginalsTestsExpect:
    """The cases of `api/config/v1/replicas_test.go`, in our own words."""

    UUID = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"

    @pytest.mark.parametrize(
        ("devices", "read"),
        [
            ("all", None),
            (2, 2),
            ([0], ("0",)),
            (["0"], ("0",)),
            (["0:0"], ("0:0",)),
            ([f"GPU-{UUID}"], (f"GPU-{UUID}",)),
            ([f"MIG-{UUID}"], (f"MIG-{UUID}",)),
            ([f"MIG-GPU-{UUID}/0/0"], (f"MIG-GPU-{UUID}/0/0",)),
            ([0, "0:0", f"GPU-{UUID}"], ("0", "0:0", f"GPU-{UUID}")),
        ],
    )
    def test_devices_that_are_read(self, devices: Any, read: Any) -> None:
        config = resolve_config(sliced(resources=[{**ENTRY, "devices": devices}]), honor_renames=True)
        assert config.sharing is not None
        assert config.sharing.resources[0].devices == read

    @pytest.mark.parametrize(
        "devices",
        [
            "not-all",
            -2,
            2.0,
            [-1],
            ["-1"],
            ["invalid-UUID"],
            ["GPU-UUID"],
            ["MIG-UUID"],
            [f"MIG-GPU-{UUID}"],
            [],
        ],
    )
    def test_devices_that_are_refused(self, devices: Any) -> None:
        with pytest.raises(InputError):
            resolve_config(sliced(resources=[{**ENTRY, "devices": devices}]))

    @pytest.mark.parametrize(
        "entry",
        [
            {},
            {"name": "valid"},
            {"name": "valid", "replicas": -1},
            {"name": "valid", "replicas": 0},
            {"name": "$invalid$", "replicas": 2},
            {"name": "valid", "replicas": 2, "rename": "$invalid$"},
        ],
    )
    def test_entries_that_are_refused(self, entry: dict[str, Any]) -> None:
        with pytest.raises(InputError):
            resolve_config(sliced(resources=[entry]))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
SPOTS = [
    *(field.path for field in PLUGIN_FIELDS),
    "version",
    "flags",
    "flags.plugin",
    "sharing",
    "sharing.timeSlicing",
    "sharing.mps",
    "sharing.mps.resources",
    "sharing.timeSlicing.resources",
    "sharing.timeSlicing.renameByDefault",
    "resources",
    "imex",
]


def grown(spots: dict[str, Any]) -> dict[str, Any]:
    """A file with these values at these places."""
    tree: dict[str, Any] = {}
    for path, value in spots.items():
        inner = tree
        *above, last = path.split(".")
        for part in above:
            step = inner.setdefault(part, {})
            inner = step if isinstance(step, dict) else {}
        inner[last] = value
    return tree


@given(st.dictionaries(st.sampled_from(SPOTS), anything, max_size=5))
def test_a_mutated_file_is_read_or_refused(spots: dict[str, Any]) -> None:
    with contextlib.suppress(InputError):
        resolve_config(grown(spots))


def refusal(file: Any, *more: Any) -> InputError | None:
    try:
        resolve_config(file, *more, honor_renames=True)
    except InputError as refused:
        return refused
    return None


JUNK: list[Any] = [True, 0, 5, -1, 10**30, 1.5, float("nan"), float("inf"), "", "x", "²", "all", b"x"]
JUNK += [[], [[]], [None], [0], ["x"], [{}], {}, {"x": 1}, {"resources": [1]}, {0: 0}]


@pytest.mark.parametrize("path", SPOTS)
def test_junk_in_one_place_is_read_or_refused_with_that_place(path: str) -> None:
    """One wrong value at a time, so that no other refusal comes first."""
    for value in JUNK:
        refused = refusal(grown({path: value}))
        assert refused is None or (refused.path or "").startswith(path.partition(".")[0]), f"{value!r}"


@pytest.mark.parametrize("field", PLUGIN_FIELDS, ids=lambda field: field.flag)
def test_junk_in_the_environment_or_in_a_flag_is_refused_by_its_name(field: Any) -> None:
    for word in ("", "x", "²", "-1", "1e999", ",", " ", "null"):
        for name in (*field.variables, field.flag):
            settings, flags = ({}, {name: word}) if name == field.flag else ({name: word}, {})
            refused = refusal(None, settings, flags)
            assert refused is None or (refused.path or "").startswith(name)


@given(anything)
def test_any_entry_is_read_or_refused(entry: Any) -> None:
    with contextlib.suppress(InputError):
        resolve_config({"sharing": {"timeSlicing": {"resources": [entry]}}}, honor_renames=True)
