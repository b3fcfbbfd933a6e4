"""Advice on sharing: isolation first, hardware second, load pattern third; and what is predicted makes sense."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.model.gpu_models import find_gpu_model, mig_geometry_of_model
from windlass.sharing.advise import (
    Card,
    SharingWorkload,
    TenantLoad,
    advise,
    fitting_profiles,
    predict_mig,
    predict_mps,
    predict_time_slicing,
)


def card(name: str) -> Card:
    model = find_gpu_model(name)
    assert model is not None
    major, minor = model.compute_capability.split(".")
    return Card(
        name=model.product,
        memory_mib=model.memory_mib,
        compute=(int(major), int(minor)),
        geometry=mig_geometry_of_model(model.product),
    )


loads = st.builds(
    TenantLoad,
    busy=st.floats(0, 1),
    multiprocessors=st.floats(0, 1),
    bandwidth=st.floats(0, 1),
    request_us=st.floats(10, 1e6),
)


class TestOrder:
    def test_strict_isolation_means_mig(self) -> None:
        assert advise(SharingWorkload(tenants=4, isolation="strict"), card("H200")).way == "mig"

    def test_strict_isolation_without_mig_means_a_gpu_for_each(self) -> None:
        advice = advise(SharingWorkload(tenants=4, isolation="strict"), card("L40S"))
        assert advice.way == "whole"
        assert {option.way for option in advice.options if not option.possible} == {
            "mig",
            "mps",
            "time-slicing",
        }

    def test_faults_kept_apart_without_mig_means_turns(self) -> None:
        assert advise(SharingWorkload(tenants=2, isolation="faults"), card("T4")).way == "time-slicing"

    def test_small_tenants_that_hardly_fill_it_run_together(self) -> None:
        load = TenantLoad(busy=1.0, multiprocessors=0.1, request_us=250)
        assert advise(SharingWorkload(tenants=4, load=load), card("L40S")).way == "mps"

    def test_nobody_to_share_with(self) -> None:
        assert advise(SharingWorkload(tenants=1), card("H200")).way == "whole"

    def test_latency_that_no_sharing_can_hold(self) -> None:
        advice = advise(SharingWorkload(tenants=7, latency_sensitive=True), card("H200"))
        assert advice.way == "whole"
        assert "times slower" in advice.reason

    def test_memory_that_does_not_fit_is_said(self) -> None:
        advice = advise(SharingWorkload(tenants=4, memory_mib=40_000), card("L40S"))
        assert advice.way == "whole"
        assert any("need 160000 MiB, and the GPU has 46068 MiB" in option.reason for option in advice.options)

    def test_the_profile_has_room_for_the_memory(self) -> None:
        advice = advise(SharingWorkload(tenants=2, memory_mib=60_000, isolation="strict"), card("H200"))
        assert next(option for option in advice.options if option.way == "mig").profile == "3g.71gb"


@given(loads, st.integers(2, 7))
def test_more_tenants_are_never_faster(load: TenantLoad, tenants: int) -> None:
    assert predict_time_slicing(load, tenants) >= predict_time_slicing(load, tenants - 1) >= 1
    for limited in (True, False):
        more, fewer = (predict_mps(load, count, limited=limited) for count in (tenants, tenants - 1))
        assert more >= fewer >= 1


@given(loads)
def test_a_larger_instance_is_never_slower(load: TenantLoad) -> None:
    geometry = mig_geometry_of_model("H200")
    assert geometry is not None
    by_size = sorted(geometry.profiles, key=lambda profile: (profile.compute_slices, profile.memory_slices))
    plain = [profile for profile in by_size if not profile.media and profile.name != "1g.35gb"]
    predicted = [predict_mig(load, geometry, profile) for profile in plain]
    assert predicted == sorted(predicted, reverse=True)


@given(st.integers(1, 7), st.integers(0, 141_000))
def test_profiles_that_fit_do(tenants: int, memory: int) -> None:
    geometry = mig_geometry_of_model("H200")
    assert geometry is not None
    for profile in fitting_profiles(geometry, tenants, memory, 143_771):
        assert profile.memory_slices * tenants <= geometry.memory_slices
        assert profile.memory_slices * 143_771 // geometry.memory_slices >= memory
