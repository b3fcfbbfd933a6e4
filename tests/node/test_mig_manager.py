"""MIG changes carried out: fewest steps, rolled back when one fails, and always brought to an end that says why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.node.machines import machine
from tests.sharing.layouts import legal_layouts

from windlass.model.errors import ClusterUnreachable
from windlass.model.names.nvidia import MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.node import mig_apply
from windlass.node.backend.protocol import DeviceError, ProcessUsage
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.mig_apply import apply_plans
from windlass.node.mig_manager import MigManager
from windlass.sharing.inventory import Inventory
from windlass.sharing.mig_plan import plan_gpu


def layout(backend: SimulatedBackend, index: int = 0) -> list[tuple[str, int]]:
    return [(instance.profile, instance.start) for instance in backend.inventory().gpus[index].instances]


def bring(backend: SimulatedBackend, wanted: dict[str, int], enabled: bool = True) -> None:
    gpu = backend.inventory().gpus[0]
    apply_plans(backend, [plan_gpu(gpu, wanted, enabled=enabled)])


class Forgets:
    """A back end that lists no instance for a moment after one was destroyed, as an H200 did."""

    def __init__(self, backend: SimulatedBackend, times: int) -> None:
        self._backend, self._times, self._left = backend, times, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def destroy_instance(self, uuid: str, number: int) -> None:
        self._backend.destroy_instance(uuid, number)
        self._left = self._times

    def inventory(self) -> Inventory:
        found = self._backend.inventory()
        if not self._left:
            return found
        self._left -= 1
        return msgspec.structs.replace(
            found, gpus=tuple(msgspec.structs.replace(gpu, instances=()) for gpu in found.gpus)
        )


@pytest.mark.parametrize(("times", "error"), [(2, ""), (99, "there is no 3g.71gb")])
def test_an_instance_that_is_not_listed_for_a_moment_is_looked_for_again(
    monkeypatch: pytest.MonkeyPatch, times: int, error: str
) -> None:
    monkeypatch.setattr(mig_apply, "LOOK_AGAIN_SECONDS", (0.0,) * 3)
    backend = machine("H200", 1)
    bring(backend, {"3g.71gb": 1, "4g.71gb": 1})
    plan = plan_gpu(backend.inventory().gpus[0], {}, enabled=True)
    if error:
        with pytest.raises(DeviceError, match=error):
            apply_plans(Forgets(backend, times), [plan])  # type: ignore[arg-type]
    else:
        apply_plans(Forgets(backend, times), [plan])  # type: ignore[arg-type]
        assert layout(backend) == []


class FailsOnce:
    """A back end whose so-manieth change of the hardware is refused, and no other."""

    CHANGES = ("create_instance", "destroy_instance", "set_mig_mode", "reset")

    def __init__(self, backend: SimulatedBackend, number: int) -> None:
        self._backend = backend
        self._left = number

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        if name in self.CHANGES:
            self._left -= 1
            if self._left == 0:
                return self._refuse
        return found

    def _refuse(self, *arguments: object) -> None:
        raise DeviceError("Unknown Error")


class TestApply:
    def test_layouts_one_after_the_other_and_back_to_none(self) -> None:
        backend = machine("H200", 1)
        for wanted in (
            {"1g.18gb": 7},
            {"1g.18gb": 1, "2g.35gb": 1, "3g.71gb": 1},
            {"4g.71gb": 1, "3g.71gb": 1},
        ):
            bring(backend, wanted)
            assert Counter(profile for profile, _ in layout(backend)) == Counter(wanted)
        bring(backend, {}, enabled=False)
        assert not backend.inventory().gpus[0].mig_enabled

    def test_what_stays_keeps_its_identity(self) -> None:
        backend = machine("H200", 1, mig=("1g.18gb",) * 7)
        before = {instance.uuid for instance in backend.inventory().gpus[0].instances}
        bring(backend, {"1g.18gb": 3, "3g.71gb": 1})
        after = {instance.uuid for instance in backend.inventory().gpus[0].instances}
        assert len(before & after) == 3

    @given(
        st.sampled_from(legal_layouts("H100")),
        st.sampled_from(legal_layouts("H100")),
        st.sampled_from(["create", "destroy", "create 1g.10gb", "create 3g.40gb", "mig-mode"]),
    )
    def test_a_step_that_fails_leaves_the_layout_as_it_was(
        self, first: tuple[str, ...], second: tuple[str, ...], refused: str
    ) -> None:
        backend = machine("H100", 1)
        if first:
            bring(backend, dict(Counter(first)))
        before = layout(backend)
        mode = backend.inventory().gpus[0].mig_enabled
        backend.inject(0, refuses=[refused])
        try:
            bring(backend, dict(Counter(second)))
        except DeviceError as error:
            if "not rolled back" in str(error):
                # What fails for good can't be undone either: the error says so instead of hiding it.
                assert refused in ("create", "destroy", "create 1g.10gb", "create 3g.40gb")
                return
            assert sorted(layout(backend)) == sorted(before)
            assert backend.inventory().gpus[0].mig_enabled == mode
        else:
            assert Counter(profile for profile, _ in layout(backend)) == Counter(second)

    @given(
        st.sampled_from(["H100", "A100-40", "A30"]),
        st.data(),
        st.integers(1, 12),
    )
    def test_a_step_that_fails_once_is_rolled_back_completely(
        self, model: str, data: st.DataObject, number: int
    ) -> None:
        """Undone in the opposite order: what was made has to go before what was there can come back."""
        product = machine(model, 1).inventory().gpus[0].name.replace(" ", "-")
        first = data.draw(st.sampled_from(legal_layouts(product)))
        second = data.draw(st.sampled_from(legal_layouts(product)))
        backend = machine(model, 1)
        if first:
            bring(backend, dict(Counter(first)))
        before, mode = layout(backend), backend.inventory().gpus[0].mig_enabled
        failing = FailsOnce(backend, number)
        plan = plan_gpu(backend.inventory().gpus[0], dict(Counter(second)), enabled=bool(second))
        words = ""
        try:
            apply_plans(failing, [plan])  # type: ignore[arg-type]
        except DeviceError as error:
            words = str(error)
        if not words:
            assert Counter(profile for profile, _ in layout(backend)) == Counter(second)
            return
        assert words.endswith("; rolled back")
        assert sorted(layout(backend)) == sorted(before)
        gpu = backend.inventory().gpus[0]
        assert (gpu.mig_enabled, gpu.mig_pending) == (mode, mode)

    def test_ampere_gets_the_reset_that_it_needs(self) -> None:
        backend = machine("A100-40", 1)
        bring(backend, {"1g.5gb": 2})
        assert len(layout(backend)) == 2

    def test_a_reset_that_fails_leaves_nothing_pending(self) -> None:
        backend = machine("A100-40", 1)
        backend.inject(0, refuses=["reset"])
        with pytest.raises(DeviceError, match=r"needs a reset of the GPU, which failed.*rolled back"):
            bring(backend, {"1g.5gb": 2})
        gpu = backend.inventory().gpus[0]
        assert not gpu.mig_enabled
        assert not gpu.mig_pending

    def test_other_gpus_are_not_touched(self) -> None:
        backend = machine("H200", 2, mig=("1g.18gb",) * 7)
        other = backend.inventory().gpus[1]
        bring(backend, {"7g.141gb": 1})
        assert backend.inventory().gpus[1] == other

    def test_minor_numbers_that_change_are_followed(self, tmp_path: Path) -> None:
        backend = machine("H200", 2, folder=tmp_path)
        backend.inject(0, minor=5)
        assert (tmp_path / "dev/nvidia5").exists() is False
        assert backend.inventory().gpus[0].minor == 5
        assert (tmp_path / "dev/nvidia5").exists()
        assert not (tmp_path / "dev/nvidia0").exists()


class Scene:
    def __init__(self, backend: SimulatedBackend, file: Path | None = None) -> None:
        self.backend = backend
        self.held: dict[str, list[DeviceHolder]] = {}
        self.states: list[tuple[str, str]] = []
        self.now = 0.0
        self.manager = MigManager(
            backend,
            config_file=file,
            holders=self.holders,
            write_state=lambda state, reason: self.states.append((state, reason)),
            log=lambda line: None,
            cordon_devices=self.hold_back,
            clock=lambda: self.now,
            process_name=lambda pid: self.names.get(pid, "python"),
        )
        self.names: dict[int, str] = {}
        self.asked: list[frozenset[str]] = []
        self.meanwhile: Callable[[], None] = lambda: None

    @contextmanager
    def hold_back(self, uuids: frozenset[str]) -> Iterator[None]:
        self.asked.append(uuids)
        self.meanwhile()
        yield

    def holders(self) -> Mapping[str, Sequence[DeviceHolder]]:
        return self.held

    def label(self, name: str, state: str = "") -> None:
        labels: dict[str, Any] = {
            MIG_CONFIG_LABEL: name,
            **({MIG_CONFIG_STATE_LABEL: state} if state else {}),
        }
        self.manager.on_node({"metadata": {"labels": labels}})


class TestHeldBack:
    """What is given away between the plan and its first step."""

    def test_only_what_goes_is_held_back(self) -> None:
        scene = Scene(machine("H200", 2, mig=("1g.18gb",) * 7))
        scene.label("all-balanced")
        first = scene.backend.inventory().gpus[0]
        (asked,) = scene.asked
        assert not asked & {first.uuid, *(instance.uuid for instance in first.instances)}, "what stays is not"
        assert len(asked) == 10

    def test_a_gpu_whose_mode_changes_is_held_back_as_a_whole(self) -> None:
        scene = Scene(machine("H200", 2))
        scene.label("all-1g.18gb")
        assert scene.asked == [frozenset(gpu.uuid for gpu in scene.backend.inventory().gpus)]

    def test_a_pod_that_got_one_meanwhile_keeps_it(self) -> None:
        scene = Scene(machine("H200", 1, mig=("1g.18gb",) * 7))
        before = layout(scene.backend)
        instances = scene.backend.inventory().gpus[0].instances

        def give() -> None:
            scene.held = {instance.uuid: [DeviceHolder("late", "team", "main")] for instance in instances}

        scene.meanwhile = give
        scene.label("all-3g.71gb")
        state, reason = scene.states[-1]
        assert state == "failed"
        assert "team/late" in reason
        assert layout(scene.backend) == before, "nothing was touched"
        scene.meanwhile = lambda: None
        scene.held = {}
        scene.manager.retry()
        assert scene.states[-1][0] == "success"

    def test_pods_that_come_and_go_all_the_time_are_waited_for(self) -> None:
        scene = Scene(machine("H200", 1, mig=("1g.18gb",) * 7))
        first, _, third, *_ = scene.backend.inventory().gpus[0].instances  # where one is kept, the other goes

        def change_hands() -> None:
            held = (first, third)[len(scene.asked) % 2]
            scene.held = {held.uuid: [DeviceHolder("restless", "team", "main")]}

        change_hands()
        scene.meanwhile = change_hands
        scene.label("all-balanced")
        failed = scene.states[-1]
        assert failed == ("failed", "pods got or released GPUs during each of 3 attempts")
        scene.meanwhile, scene.held = (lambda: None), {}
        scene.manager.retry()
        assert scene.states[-1] == failed, "not at once: whoever comes and goes does so again"
        scene.now = 5.0
        scene.manager.retry()
        assert scene.states[-1][0] == "success"

    def test_another_instance_goes_where_one_was_taken_meanwhile(self) -> None:
        scene = Scene(machine("H200", 1, mig=("1g.18gb",) * 7))
        lower_half = [instance.uuid for instance in scene.backend.inventory().gpus[0].instances if instance.start < 4]
        given: list[str] = []

        def give_one_that_was_to_go() -> None:
            """In the half that the layout can do without: three slices fit into the other."""
            if not given:
                given.append(next(uuid for uuid in lower_half if uuid in scene.asked[-1]))
                scene.held = {given[0]: [DeviceHolder("late", "team", "main")]}

        scene.meanwhile = give_one_that_was_to_go
        scene.label("all-balanced")
        assert scene.states[-1][0] == "success"
        left = {instance.uuid for instance in scene.backend.inventory().gpus[0].instances}
        assert set(given) <= left

    def test_hands_that_change_each_time_end_it_and_nobody_loses_what_he_has(self) -> None:
        scene = Scene(machine("H200", 1, mig=("1g.18gb",) * 7))

        def give_another() -> None:
            scene.held = {sorted(scene.asked[-1])[0]: [DeviceHolder("late", "team", "main")]}

        scene.meanwhile = give_another
        scene.label("all-balanced")
        assert len(scene.asked) <= 3
        assert scene.states[-1][0] in ("failed", "success")
        assert set(scene.held) <= {instance.uuid for instance in scene.backend.inventory().gpus[0].instances}


class TestManager:
    def test_pending_then_success_with_what_was_done(self) -> None:
        scene = Scene(machine("H200", 2))
        scene.label("all-1g.18gb")
        assert [state for state, _ in scene.states] == ["pending", "success"]
        assert "create 1g.18gb at slice 6" in scene.states[-1][1]
        assert len(layout(scene.backend, 1)) == 7

    def test_the_same_label_again_does_nothing(self) -> None:
        scene = Scene(machine("H200", 1))
        scene.label("all-1g.18gb")
        scene.label("all-1g.18gb", "success")
        assert len(scene.states) == 2

    def test_an_agent_that_starts_on_a_finished_node_says_nothing(self) -> None:
        scene = Scene(machine("H200", 1, mig=("1g.18gb",) * 7))
        scene.label("all-1g.18gb", "success")
        assert scene.states == []

    def test_an_agent_that_died_half_way_ends_it(self) -> None:
        scene = Scene(machine("H200", 1, mig=("1g.18gb",) * 3))
        scene.label("all-1g.18gb", "pending")
        assert [state for state, _ in scene.states] == ["pending", "success"]

    @pytest.mark.parametrize("state", ["", "pending"])
    def test_while_nothing_may_be_written_no_gpu_is_changed_and_the_label_is_looked_at_again(
        self, state: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene = Scene(machine("H200", 1))

        def frozen(state: str, reason: str) -> None:
            raise ClusterUnreachable("PATCH was not sent: writes are frozen")

        with monkeypatch.context() as patch:
            patch.setattr(scene.manager, "_write", frozen)
            for _ in range(2):
                with pytest.raises(ClusterUnreachable):
                    scene.label("all-1g.18gb", state)
        assert scene.asked == []
        scene.label("all-1g.18gb", state)
        assert [written for written, _ in scene.states] == ["pending", "success"]

    @pytest.mark.parametrize(
        ("name", "words"),
        [("nonsense", "there is no MIG config 'nonsense'"), ("all-9g.1gb", "there is no MIG config")],
    )
    def test_an_unknown_name_fails_with_what_there_is(self, name: str, words: str) -> None:
        scene = Scene(machine("H200", 1))
        scene.label(name)
        assert scene.states[-1][0] == "failed"
        assert words in scene.states[-1][1]
        assert "all-balanced" in scene.states[-1][1]

    def test_a_wrong_file_fails_with_its_field(self, tmp_path: Path) -> None:
        file = tmp_path / "mig.yaml"
        file.write_text("version: v1\nmig-configs:\n  a: [{devices: all}]\n")
        scene = Scene(machine("H200", 1), file)
        scene.label("a")
        assert scene.states[-1][0] == "failed"
        assert "mig-configs.a[0].mig-enabled" in scene.states[-1][1]

    def test_a_driver_that_refuses_ends_in_failed_and_the_old_layout(self) -> None:
        backend = machine("H200", 1, mig=("1g.18gb", "1g.18gb"))
        before = layout(backend)
        backend.inject(0, refuses=["create 3g.71gb"])
        scene = Scene(backend)
        scene.label("all-balanced")
        assert scene.states[-1][0] == "failed"
        assert "rolled back" in scene.states[-1][1]
        assert layout(backend) == before

    def test_a_bug_of_ours_ends_in_failed_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        scene = Scene(machine("H200", 1))

        def broken(*arguments: object) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(scene.backend, "create_instance", broken)
        scene.label("all-1g.18gb")
        assert scene.states[-1] == ("failed", "GPU 0: create 1g.18gb at slice 0: disk full; rolled back")
        assert not scene.backend.inventory().gpus[0].mig_enabled

    def test_pods_are_never_disturbed_and_it_goes_on_when_they_are_gone(self) -> None:
        scene = Scene(machine("H200", 1, mig=("3g.71gb", "3g.71gb")))
        uuid = scene.backend.inventory().gpus[0].instances[0].uuid
        scene.held = {uuid: [DeviceHolder("train", "team-a", "main")]}
        scene.label("all-1g.18gb")
        assert scene.states[-1][0] == "failed"
        assert "team-a/train" in scene.states[-1][1]
        assert len(layout(scene.backend)) == 2
        scene.manager.retry()
        assert len(scene.states) == 2, "still held: nothing new to say"
        scene.held = {}
        scene.manager.retry()
        assert scene.states[-1][0] == "success"
        assert len(layout(scene.backend)) == 7

    def test_a_process_of_the_host_counts_too(self) -> None:
        backend = machine("H200", 1, mig=("3g.71gb", "3g.71gb"))
        first = backend.inventory().gpus[0].instances[0]
        backend.inject(0, processes=[ProcessUsage(pid=7, gpu_instance=first.gpu_instance)])
        scene = Scene(backend)
        scene.label("all-1g.18gb")
        assert scene.states[-1][0] == "failed"
        assert first.uuid in scene.states[-1][1]

    def test_an_mps_server_alone_is_no_user(self) -> None:
        """The plugin stops its daemon when the GPU is cordoned; clients would be in the list themselves."""
        backend = machine("H200", 1)
        backend.inject(0, processes=[ProcessUsage(pid=7)])
        scene = Scene(backend)
        scene.names = {7: "nvidia-cuda-mps"}
        scene.meanwhile = lambda: backend.inject(0, processes=[])
        scene.label("all-1g.18gb")
        assert scene.states[-1][0] == "success"
        assert len(layout(backend)) == 7
