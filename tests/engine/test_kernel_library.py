"""The library of compiled kernels: what it refuses, and which library is taken.

That its functions decide as the plain ones do is shown in `test_same_plan` and `test_same_decisions`.
"""

from __future__ import annotations

import platform
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from test_same_plan import mix_from, place

from reference.park import Desk, gpu_node, pod
from windlass import jit, kernel_library


@pytest.fixture(autouse=True)
def fresh() -> None:
    """What is chosen is remembered for the process."""
    for choice in (jit.compiled, jit._library):
        choice.cache_clear()


def library_of(folder: Path) -> Path:
    """A copy of the library in another folder."""
    for path in kernel_library.FOLDER.glob("*"):
        shutil.copy(path, folder)
    (library,) = folder.glob(f"*-{platform.machine()}.so")
    return library


class TestWhichIsTaken:
    def test_the_one_of_these_sources_for_small_inputs_too(self) -> None:
        assert jit.kernels(small=True).place_queue.__module__ == kernel_library.__name__

    def test_none_of_other_sources(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jit, "sources_digest", lambda: "0" * 16)
        assert jit.kernels(small=True) is jit.interpreted()
        assert jit.kernels(small=False).place_queue.__module__ != kernel_library.__name__, "numba's"

    def test_none_that_can_not_be_loaded(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        library_of(tmp_path).write_bytes(b"of another C library")
        monkeypatch.setattr(kernel_library, "FOLDER", tmp_path)
        assert kernel_library.load(jit.sources_digest()) is None

    def test_none_of_which_only_a_part_was_copied(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        library_of(tmp_path).with_suffix(".json").unlink()
        monkeypatch.setattr(kernel_library, "FOLDER", tmp_path)
        assert kernel_library.load(jit.sources_digest()) is None


class TestForWhichProcessor:
    def test_the_best_that_this_one_is(self) -> None:
        new = "processor\t: 0\nflags\t\t: fpu sse4_2 avx avx2 bmi1 bmi2 f16c fma abm movbe avx512f\n"
        assert kernel_library.processor_of("x86_64", new) == "x86-64-v3"
        assert kernel_library.processor_of("x86_64", new.replace(" bmi2", "")) == "x86-64-v2"
        assert kernel_library.processor_of("x86_64", "") == "x86-64-v2"
        assert kernel_library.processor_of("aarch64", "Features\t: fp asimd\n") == "generic"

    def test_its_code_for_older_ones_decides_alike(self) -> None:
        nodes = [gpu_node(f"n{index:03}", 1 + index % 4, cpu=4 + index % 7) for index in range(70)]
        pods = [pod(f"p{index}", share=f"0.{1 + index % 9}", cpu=f"{1 + index % 3}") for index in range(150)]
        snapshot, mix = Desk(*nodes, *pods).store.snapshot(), mix_from(*pods)
        functions = kernel_library.load(jit.sources_digest(), kernel_library.PROCESSORS[platform.machine()][0])
        assert functions is not None
        for policy in ("windlass", "fgd", "random"):
            found = place(snapshot, policy, mix, jit.Kernels(**functions))
            assert found == place(snapshot, policy, mix, jit.compiled())


class TestWhatItRefuses:
    """Compiled code would read beyond an array of another kind."""

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros(4), "takes i1 was given float64"),
            (np.zeros(4, np.int32), "takes i1 was given int32"),
            (np.zeros((2, 2), np.int64), "with 2 dimensions"),
            (np.zeros(8, np.int64)[::2], "not contiguous"),
            (np.frombuffer(bytes(32), np.int64), "read-only"),
            (np.frombuffer(bytearray(33), np.int64, 4, offset=1), "not aligned"),
            (np.zeros(4, ">i8"), "takes i1 was given >i8"),
        ],
    )
    def test_arrays_of_another_kind(self, array: np.ndarray, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            kernel_library._check(array, "i1")


def test_threads_decide_at_the_same_time_as_one_after_the_other() -> None:
    """A call's own block holds its arguments; blocks of tuples are shared between calls that get the same tuple."""
    worlds = []
    for count in (3, 5, 9, 17):
        nodes = [gpu_node(f"n{index:02}", 8) for index in range(count)]
        pods = [pod(f"p{index}", share=f"0.{1 + index % 9}") for index in range(4 * count)]
        worlds.append((Desk(*nodes, *pods).store.snapshot(), mix_from(*pods)))
    alone = [place(snapshot, "windlass", mix, jit.compiled()) for snapshot, mix in worlds]
    found: dict[int, list[object]] = {number: [] for number in range(len(worlds))}

    def decide(number: int) -> None:
        snapshot, mix = worlds[number]
        found[number] = [place(snapshot, "windlass", mix, jit.compiled()) for _ in range(5)]

    threads = [threading.Thread(target=decide, args=(number,)) for number in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [plan] * 5 for number, plan in enumerate(alone)}
