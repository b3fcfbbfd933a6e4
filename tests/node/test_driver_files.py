"""Finding the driver: four layouts of hosts, the loader's cache, and what is said where there is no driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.node import driver_layouts as layouts
from tests.node.driver_layouts import INSIDE, LAYOUTS, ON_HOST, VERSION

from windlass.model.errors import InputError
from windlass.node.driver_files import DriverFiles, find_driver, folder_times
from windlass.node.driver_root import DriverRoot
from windlass.node.host_root import HostRoot
from windlass.node.ld_cache import read_ld_cache


def mounted(folder: Path) -> HostRoot:
    """The host's files as an agent in a container has them: mounted in a folder."""
    return HostRoot("/", files=folder)


@pytest.mark.parametrize("layout", LAYOUTS)
class TestLayouts:
    def find(self, folder: Path, layout: str) -> DriverFiles:
        LAYOUTS[layout](folder)
        return find_driver(mounted(folder), VERSION)

    def test_every_library_is_found_with_its_path_on_the_host(self, tmp_path: Path, layout: str) -> None:
        found = self.find(tmp_path, layout)
        names = [f"{name}.so.{VERSION}" for name in layouts.LIBRARIES]
        assert [file.host for file in found.libraries] == sorted(f"{ON_HOST[layout]}/{name}" for name in names)
        assert [file.inside for file in found.libraries] == sorted(f"{INSIDE[layout]}/{name}" for name in names)
        assert all(Path(file.local).is_file() for file in (*found.libraries, *found.others))

    def test_programs_are_on_the_path_of_containers(self, tmp_path: Path, layout: str) -> None:
        found = self.find(tmp_path, layout)
        assert found.binary("nvidia-smi").startswith(str(tmp_path))
        assert "/usr/bin/nvidia-smi" in [file.inside for file in found.others]

    def test_links_are_what_programs_ask_for(self, tmp_path: Path, layout: str) -> None:
        links = {link.path: link.target for link in self.find(tmp_path, layout).links}
        folder = INSIDE[layout]
        assert links[f"{folder}/libcuda.so"] == "libcuda.so.1"
        assert links[f"{folder}/libcuda.so.1"] == f"libcuda.so.{VERSION}"
        assert links[f"{folder}/libnvidia-ml.so.1"] == f"libnvidia-ml.so.{VERSION}"
        assert links[f"{folder}/gbm/nvidia-drm_gbm.so"] == "../libnvidia-allocator.so.1"


@pytest.mark.parametrize("layout", ["debian", "driver-container"])
def test_firmware_goes_to_the_same_place(tmp_path: Path, layout: str) -> None:
    LAYOUTS[layout](tmp_path)
    found = find_driver(mounted(tmp_path), VERSION)
    (firmware,) = [file for file in found.others if file.inside.endswith(".bin")]
    assert firmware.inside.startswith(f"/lib/firmware/nvidia/{VERSION}/gsp_")


class TestChoice:
    def test_a_folder_that_only_the_loader_knows_is_found(self, tmp_path: Path) -> None:
        layouts.add_libraries(tmp_path, "opt/site/nvidia/lib")
        layouts.add(tmp_path, "usr/bin/true")
        with pytest.raises(InputError, match="libcuda"):
            find_driver(mounted(tmp_path), VERSION)
        layouts.add_ld_cache(tmp_path, {"libcuda.so.1": "/opt/site/nvidia/lib/libcuda.so.1"})
        found = find_driver(mounted(tmp_path), VERSION)
        assert [file.host for file in found.libraries if "libcuda.so" in file.host] == [
            f"/opt/site/nvidia/lib/libcuda.so.{VERSION}"
        ]

    def test_the_hosts_own_driver_goes_before_a_driver_container(self, tmp_path: Path) -> None:
        layouts.debian(tmp_path)
        layouts.driver_container(tmp_path)
        assert find_driver(mounted(tmp_path), VERSION).root == "/"

    def test_what_the_configuration_names_is_taken(self, tmp_path: Path) -> None:
        layouts.debian(tmp_path)
        layouts.driver_container(tmp_path)
        found = find_driver(mounted(tmp_path), VERSION, driver_root="/run/nvidia/driver")
        assert found.libraries[0].host.startswith("/run/nvidia/driver/usr/lib/")

    def test_the_original_mounts_only_that_folder(self, tmp_path: Path) -> None:
        """NVIDIA's manifests: the driver's root at containerDriverRoot, and nothing else of the host."""
        layouts.driver_container(tmp_path / "host")
        inside = tmp_path / "host" / layouts.CONTAINER
        host = mounted(tmp_path / "empty")
        found = find_driver(host, VERSION, driver_root="/run/nvidia/driver", container_driver_root=str(inside))
        assert found.libraries[0].host.startswith("/run/nvidia/driver/usr/lib/")
        assert Path(found.libraries[0].local).is_file()

    def test_libraries_of_another_version_and_32_bit_ones_are_left(self, tmp_path: Path) -> None:
        layouts.usr_local(tmp_path)
        layouts.add(tmp_path, f"usr/local/nvidia/lib64/libcuda.so.{VERSION}1", layouts.ELF_64)
        layouts.add(tmp_path, f"usr/lib/libcuda.so.{VERSION}", layouts.ELF_32)
        found = find_driver(mounted(tmp_path), VERSION)
        assert [file.host for file in found.libraries if "libcuda.so" in file.host] == [
            f"/usr/local/nvidia/lib64/libcuda.so.{VERSION}"
        ]

    def test_a_library_that_was_installed_later_is_seen(self, tmp_path: Path) -> None:
        layouts.usr_local(tmp_path)
        before = folder_times(mounted(tmp_path))
        layouts.add(tmp_path, f"usr/local/nvidia/lib64/libnvidia-new.so.{VERSION}")
        assert folder_times(mounted(tmp_path)) != before


class TestNone:
    def test_is_refused_with_the_folders(self, tmp_path: Path) -> None:
        layouts.add(tmp_path, "usr/lib64/libc.so.6")
        with pytest.raises(InputError) as refused:
            find_driver(mounted(tmp_path), VERSION)
        assert "/usr/lib64" in str(refused.value)
        assert f"libcuda.so.{VERSION}" in str(refused.value)
        assert refused.value.path == "flags.nvidiaDriverRoot"

    def test_other_libraries_alone_are_no_driver(self, tmp_path: Path) -> None:
        layouts.add(tmp_path, f"usr/lib64/libnvidia-ml.so.{VERSION}")
        with pytest.raises(InputError, match="libcuda"):
            find_driver(mounted(tmp_path), VERSION)

    def test_a_configured_folder_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        layouts.debian(tmp_path)
        with pytest.raises(InputError, match="/opt/driver"):
            find_driver(mounted(tmp_path), VERSION, driver_root="/opt/driver")


class TestLoadersCache:
    def test_of_this_machine_is_read_as_ldconfig_prints_it(self) -> None:
        printed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        told = {line.partition(" => ")[2] for line in printed.splitlines() if "64)" in line or "64," in line}
        read = {path for _, path in read_ld_cache(Path("/etc/ld.so.cache"))}
        assert read
        assert read == told

    @pytest.mark.parametrize("with_old_part", [False, True])
    def test_both_forms(self, tmp_path: Path, with_old_part: bool) -> None:
        layouts.add_ld_cache(tmp_path, {"libcuda.so.1": "/x/libcuda.so.1"}, with_old_part=with_old_part)
        assert read_ld_cache(tmp_path / "etc/ld.so.cache") == (("libcuda.so.1", "/x/libcuda.so.1"),)

    @pytest.mark.parametrize("damage", [b"", b"nothing", b"glibc-ld.so.cache1.1\xff\xff\xff\xff"])
    def test_a_damaged_one_is_none(self, tmp_path: Path, damage: bytes) -> None:
        assert read_ld_cache(layouts.add(tmp_path, "cache", damage)) == ()
        assert read_ld_cache(tmp_path / "missing") == ()


class TestResolve:
    @pytest.mark.parametrize(
        ("target", "found"),
        [("/real", "/real/file"), ("../../real", "/real/file"), ("../../../../../real", "/real/file")],
    )
    def test_links_stay_in_the_root(self, tmp_path: Path, target: str, found: str) -> None:
        (tmp_path / "real").mkdir()
        layouts.link(tmp_path, "a/b/link", target)
        assert DriverRoot("/", tmp_path).resolve("/a/b/link/file") == found

    def test_a_loop_ends(self, tmp_path: Path) -> None:
        layouts.link(tmp_path, "loop", "loop")
        assert DriverRoot("/", tmp_path).resolve("/loop") == "/loop"
