"""Texts about a GPU from NVML, its memory and its licence; what NVML refuses is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml as nv
import pytest

from windlass.node.backend import nvml, nvml_reading
from windlass.node.backend.nvml_description import describe_gpu
from windlass.node.exporter.fields import DESCRIPTION_FIELDS


def answers(monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    """Functions of the binding that answer this, and refuse where it is an error number."""
    for name, value in given.items():

        def call(*arguments: object, value: Any = value) -> Any:
            if isinstance(value, nv.NVMLError):
                raise value
            return value(*arguments) if callable(value) else value

        monkeypatch.setattr(nv, f"nvml{name}", call)


def refusal() -> nv.NVMLError:
    return nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)


EVERYTHING: dict[str, Any] = {
    "SystemGetNVMLVersion": "13.580.159.04",
    "DeviceGetBrand": 14,
    "DeviceGetSerial": b"1652823055642",
    "DeviceGetVbiosVersion": "96.00.D0.00.03",
    "DeviceGetInforomImageVersion": "G520.0280.00.04",
    "DeviceGetInforomVersion": lambda handle, number: f"{number}.1",
}


class TestWords:
    def test_every_word_has_its_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers(monkeypatch, **EVERYTHING)
        found = describe_gpu("handle")
        known_otherwise = {"DCGM_FI_DRIVER_VERSION", "DCGM_FI_DEV_NAME", "DCGM_FI_DEV_UUID"}
        assert found.keys() == DESCRIPTION_FIELDS - known_otherwise
        assert found["DCGM_FI_DEV_SERIAL"] == "1652823055642"
        assert found["DCGM_FI_DEV_BRAND"] == "NVIDIA"
        assert [found[f"DCGM_FI_DEV_{item}_INFOROM_VER"] for item in ("OEM", "ECC", "POWER")] == [
            "0.1",
            "1.1",
            "2.1",
        ]

    @pytest.mark.parametrize("name", sorted(EVERYTHING))
    def test_one_that_is_refused_is_left_out_and_no_other(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        answers(monkeypatch, **EVERYTHING)
        everything = describe_gpu("handle")
        answers(monkeypatch, **{name: refusal()})
        found = describe_gpu("handle")
        assert len(found) == len(everything) - (3 if name == "DeviceGetInforomVersion" else 1)
        assert found.items() <= everything.items()

    def test_a_brand_that_nobody_knows_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers(monkeypatch, **{**EVERYTHING, "DeviceGetBrand": 99})
        assert "DCGM_FI_DEV_BRAND" not in describe_gpu("handle")

    def test_they_are_asked_for_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        answers(
            monkeypatch,
            **EVERYTHING,
            Init=None,
            DeviceGetHandleByUUID=lambda uuid: asked.append(uuid) or uuid,
        )
        backend = nvml.NvmlBackend()
        assert backend.description("GPU-1") == backend.description("GPU-1")
        assert asked == ["GPU-1"]


class TestNumbers:
    def test_a_gpu_without_memory_of_its_own_has_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers(monkeypatch, DeviceGetMemoryInfo=SimpleNamespace(total=80 << 30))
        assert nvml._memory_mib("handle") == 80 << 10
        answers(monkeypatch, DeviceGetMemoryInfo=refusal())
        assert nvml._memory_mib("handle") == 0

    @pytest.mark.parametrize(
        ("supported", "states", "value"),
        [(0, [], None), (0, [1], None), (1, [0], 0), (1, [1], 1), (1, [0, 1], 1), (1, [], 0)],
    )
    def test_only_a_virtual_gpu_has_a_licence(
        self, monkeypatch: pytest.MonkeyPatch, supported: int, states: list[int], value: int | None
    ) -> None:
        features = [SimpleNamespace(featureState=state) for state in states] + [SimpleNamespace(featureState=1)]
        found = SimpleNamespace(
            isGridLicenseSupported=supported,
            licensableFeaturesCount=len(states),
            gridLicensableFeatures=features,
        )
        answers(monkeypatch, DeviceGetGridLicensableFeatures_v4=found)
        expected = [] if value is None else [("DCGM_FI_DEV_VGPU_LICENSE_STATUS", value)]
        assert list(nvml_reading._license("handle")) == expected
