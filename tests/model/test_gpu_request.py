"""The ways in which the ecosystem asks for GPUs all become one request."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.model.gpu import GpuRequest, gpu_request
from windlass.model.meta import ObjectMeta
from windlass.model.pod import Pod

MILLI, COUNT, MODELS = (
    "alibabacloud.com/gpu-milli",
    "alibabacloud.com/gpu-count",
    "alibabacloud.com/gpu-card-model",
)


def asked(requests: dict[str, int], annotations: dict[str, str] | None = None) -> GpuRequest | None:
    pod = Pod(metadata=ObjectMeta(name="p", namespace="team", annotations=annotations or {}))
    return gpu_request(pod, requests)


def test_no_gpu() -> None:
    assert asked({"cpu": 1000, "pods": 1}, {"note": "x"}) is None
    assert asked({"nvidia.com/gpu": 0}) is None


def test_whole_gpus() -> None:
    assert asked({"nvidia.com/gpu": 4}) == GpuRequest(count=4, milli=1000)


def test_shared_replicas_are_a_plain_counted_resource() -> None:
    assert asked({"nvidia.com/gpu.shared": 2}) is None


def test_mig_profiles() -> None:
    assert asked({"nvidia.com/mig-1g.10gb": 2}) == GpuRequest(2, 1000, profile="1g.10gb")
    assert asked({"nvidia.com/mig-1g.10gb.me": 1}) == GpuRequest(1, 1000, profile="1g.10gb+me")


def test_kai_fractions_and_memory() -> None:
    assert asked({}, {"gpu-fraction": "0.5"}) == GpuRequest(1, 500)
    assert asked({}, {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}) == GpuRequest(2, 250)
    assert asked({}, {"gpu-memory": "8192"}) == GpuRequest(1, 0, memory_mib=8192)


@pytest.mark.parametrize(("text", "milli"), [("0.3333", 333), ("0.6667", 667), ("0.0001", 1), (".5", 500), ("1", 1000)])
def test_fractions_are_rounded_to_thousandths(text: str, milli: int) -> None:
    assert asked({}, {"gpu-fraction": text}) == GpuRequest(1, milli)


@given(st.integers(1, 1000))
def test_every_thousandth_is_kept_exactly(milli: int) -> None:
    text = f"{milli // 1000}.{milli % 1000:03d}"
    assert Fraction(text) * 1000 == milli
    assert asked({}, {"gpu-fraction": text}) == GpuRequest(1, milli)


def test_the_traces_annotations() -> None:
    assert asked({}, {MILLI: "810", COUNT: "1"}) == GpuRequest(1, 810)
    assert asked({}, {COUNT: "8"}) == GpuRequest(8, 1000)
    assert asked({}, {MILLI: "300"}) == GpuRequest(1, 300)
    assert asked({}, {MILLI: "0", COUNT: "0"}) is None
    assert asked({}, {MILLI: "500", MODELS: "V100M32|T4|T4|"}) == GpuRequest(1, 500, models=("V100M32", "T4", "T4"))
    assert asked({}, {MODELS: "T4"}) is None


def test_models_restrict_whole_gpus_too() -> None:
    assert asked({"nvidia.com/gpu": 2}, {MODELS: "A10"}) == GpuRequest(2, 1000, models=("A10",))


def test_two_ways_that_say_the_same_agree() -> None:
    assert asked({"nvidia.com/gpu": 2}, {COUNT: "2", MILLI: "1000"}) == GpuRequest(2, 1000)


def test_several_resources_at_once_are_counted_and_only_whole_gpus_are_chosen() -> None:
    both = {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.5gb": 1}
    assert asked(both) == GpuRequest(1, 1000)
    assert asked({"nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-2g.10gb": 1}) is None


@pytest.mark.parametrize(
    ("requests", "annotations", "named"),
    [
        ({"nvidia.com/gpu": 1}, {"gpu-fraction": "0.5"}, ("nvidia.com/gpu", "gpu-fraction")),
        ({"nvidia.com/gpu": 1}, {MILLI: "500"}, ("nvidia.com/gpu", MILLI)),
        ({"nvidia.com/mig-1g.5gb": 1}, {"gpu-fraction": "0.5"}, ("nvidia.com/mig-1g.5gb", "gpu-fraction")),
        ({}, {"gpu-fraction": "0.5", "gpu-memory": "100"}, ("gpu-fraction", "gpu-memory")),
    ],
)
def test_two_ways_at_once_are_refused_by_name(
    requests: dict[str, int], annotations: dict[str, str], named: tuple[str, str]
) -> None:
    with pytest.raises(InputError, match="two ways") as caught:
        asked(requests, annotations)
    assert caught.value.object == "Pod team/p"
    assert all(name in caught.value.message for name in named)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu-fraction", "0"),
        ("gpu-fraction", "1.01"),
        ("gpu-fraction", "-0.5"),
        ("gpu-fraction", "half"),
        ("gpu-fraction", ""),
        ("gpu-fraction", "."),
        ("gpu-fraction", "1/2"),
        ("gpu-fraction", "0.5" + "0" * 5000),
        ("gpu-fraction", "²"),
        ("gpu-memory", "0"),
        ("gpu-memory", "8Gi"),
        ("gpu-memory", "9" * 5000),
        (MILLI, "0"),
        (MILLI, "1001"),
        (MILLI, "0.5"),
        (MILLI, "٣"),
        (COUNT, "-1"),
        (COUNT, "99999"),
        ("gpu-fraction-num-devices", "2"),
    ],
)
def test_broken_annotations_are_named(name: str, value: str) -> None:
    with pytest.raises(InputError) as caught:
        asked({}, {name: value})
    assert caught.value.path == f"metadata.annotations.{name}"
    assert caught.value.remedy
    assert len(str(caught.value)) < 400


def test_an_unknown_profile_name_and_an_absurd_count() -> None:
    with pytest.raises(InputError, match="not the resource of a MIG profile"):
        asked({"nvidia.com/mig-huge": 1})
    with pytest.raises(InputError, match="more than any node has"):
        asked({"nvidia.com/gpu": 10**12})


@given(st.dictionaries(st.sampled_from(["gpu-fraction", "gpu-memory", MILLI, COUNT, MODELS]), st.text(max_size=8)))
def test_any_annotation_gives_a_sound_request_or_an_input_error(annotations: dict[str, str]) -> None:
    try:
        request = asked({}, annotations)
    except InputError:
        return
    if request is not None:
        assert 1 <= request.count <= 1024
        assert 1 <= request.milli <= 1000 or (request.milli == 0 and request.memory_mib > 0)
