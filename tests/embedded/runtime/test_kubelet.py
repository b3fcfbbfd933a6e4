"""The simulated kubelet: phases, restarts, init containers, deletion, admission, devices."""

from __future__ import annotations

from typing import Any

import pytest
from tests.embedded.in_process_cluster import conditions
from tests.embedded.runtime.sandbox import GPU, Sandbox

from windlass.embedded.runtime.simulated_containers import Delays
from windlass.model.unstructured import Unstructured

ANY = [{"operator": "Exists"}]


@pytest.fixture
def world() -> Sandbox:
    return Sandbox()


def state(pod: Unstructured, number: int = 0) -> Unstructured:
    found: Unstructured = pod["status"]["containerStatuses"][number]["state"]
    return found


class TestPhases:
    def test_pull_start_run_end(self) -> None:
        world = Sandbox(delays=Delays(pull=2, start=1, stop=0))
        pod = world.start("p", "cpu-0", annotations={"sandbox.windlass.dev/duration": "30s"})
        assert pod["status"]["phase"] == "Pending"
        assert state(pod) == {"waiting": {"reason": "ContainerCreating"}}
        assert pod["status"]["podIP"]
        world.pass_time(3)
        pod = world.get("pods", "p")
        assert "running" in state(pod)
        assert conditions(pod)["Ready"] == "True"
        world.pass_time(29)
        assert world.phase("p") == "Running"
        world.pass_time(1)
        pod = world.get("pods", "p")
        assert pod["status"]["phase"] == "Succeeded"
        assert state(pod)["terminated"]["exitCode"] == 0
        assert state(pod)["terminated"]["reason"] == "Completed"
        assert conditions(pod)["Ready"] == "False"
        assert world.reasons("Pod", "p") == ["Created", "Pulled", "Pulling", "Started"]

    def test_an_image_is_pulled_once_a_node(self) -> None:
        world = Sandbox(delays=Delays(pull=2, start=0, stop=0))
        world.start("a", "cpu-0", containers=[{"name": "c", "image": "x", "imagePullPolicy": "IfNotPresent"}])
        world.pass_time(2)
        world.start("b", "cpu-0", containers=[{"name": "c", "image": "x", "imagePullPolicy": "IfNotPresent"}])
        assert world.phase("b") == "Running"
        world.start("c", "cpu-1", containers=[{"name": "c", "image": "x", "imagePullPolicy": "IfNotPresent"}])
        assert world.phase("c") == "Pending"

    def test_exit_code(self, world: Sandbox) -> None:
        annotations = {"sandbox.windlass.dev/duration": "5s", "sandbox.windlass.dev/exit-code": "3"}
        world.start("p", "cpu-0", annotations=annotations)
        world.pass_time(5)
        assert world.phase("p") == "Failed"
        assert state(world.get("pods", "p"))["terminated"]["exitCode"] == 3

    @pytest.mark.parametrize(
        ("command", "phase"), [(["sleep", "20"], "Succeeded"), (["sh", "-c", "sleep 20; exit 2"], "Failed")]
    )
    def test_a_command_that_is_understood(self, world: Sandbox, command: list[str], phase: str) -> None:
        world.start("p", "cpu-0", command=command)
        world.pass_time(19)
        assert world.phase("p") == "Running"
        world.pass_time(1)
        assert world.phase("p") == phase

    def test_a_service_runs_until_it_is_deleted(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", restartPolicy="Always")
        world.pass_time(1000)
        assert world.phase("p") == "Running"

    def test_a_deadline_of_its_own(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", restartPolicy="Always", activeDeadlineSeconds=10)
        world.pass_time(11)
        pod = world.get("pods", "p")
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")


class TestRestarts:
    def crash(self, world: Sandbox, policy: str) -> Unstructured:
        return world.start("p", "cpu-0", restartPolicy=policy, command=["sh", "-c", "sleep 1; exit 1"])

    def restarts(self, world: Sandbox) -> int:
        return int(world.get("pods", "p")["status"]["containerStatuses"][0]["restartCount"])

    def test_pauses_double(self, world: Sandbox) -> None:
        self.crash(world, "Always")
        world.pass_time(1.5)
        assert self.restarts(world) == 1, "the first restart is at once"
        world.pass_time(1)
        pod = world.get("pods", "p")
        assert state(pod)["waiting"]["reason"] == "CrashLoopBackOff"
        assert state(pod)["waiting"]["message"].startswith(
            "back-off 10s restarting failed container=main pod=p_default"
        )
        assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
        assert pod["status"]["phase"] == "Running"
        world.pass_time(10)
        assert self.restarts(world) == 2
        world.pass_time(19)
        assert self.restarts(world) == 2
        world.pass_time(2)
        assert self.restarts(world) == 3
        assert "BackOff" in world.reasons("Pod", "p")

    def test_on_failure_stops_at_success(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", restartPolicy="OnFailure", command=["true"])
        assert world.phase("p") == "Succeeded"

    def test_never(self, world: Sandbox) -> None:
        self.crash(world, "Never")
        world.pass_time(100)
        assert world.phase("p") == "Failed"
        assert self.restarts(world) == 0


class TestInitContainers:
    def start(self, world: Sandbox, *inits: Unstructured, **spec: Any) -> Unstructured:
        listed = [{"name": f"init{at}", "image": "i", **init} for at, init in enumerate(inits)]
        return world.start("p", "cpu-0", initContainers=listed, **spec)

    def test_one_after_the_other(self, world: Sandbox) -> None:
        self.start(world, {"command": ["sleep", "5"]}, {"command": ["sleep", "5"]}, command=["sleep", "5"])
        pod = world.get("pods", "p")
        assert "running" in pod["status"]["initContainerStatuses"][0]["state"]
        assert state(pod) == {"waiting": {"reason": "PodInitializing"}}
        assert conditions(pod)["Initialized"] == "False"
        world.pass_time(10)
        pod = world.get("pods", "p")
        assert conditions(pod)["Initialized"] == "True"
        assert "running" in state(pod)
        world.pass_time(5)
        assert world.phase("p") == "Succeeded"

    def test_a_failed_one_fails_the_pod(self, world: Sandbox) -> None:
        self.start(world, {"command": ["false"]})
        assert world.phase("p") == "Failed"
        assert state(world.get("pods", "p")) == {"waiting": {"reason": "PodInitializing"}}

    def test_a_sidecar_runs_beside_and_ends_with_the_pod(self, world: Sandbox) -> None:
        self.start(world, {"restartPolicy": "Always", "command": ["sleep", "infinity"]}, command=["sleep", "5"])
        assert world.phase("p") == "Running"
        world.pass_time(6)
        assert world.phase("p") == "Succeeded"


class TestDeletion:
    def test_sigterm_then_gone(self) -> None:
        world = Sandbox(delays=Delays(0, 0, stop=5))
        world.start("p", "cpu-0", restartPolicy="Always")
        world.verbs.delete("pods", "default", "p")
        world.step()
        assert "deletionTimestamp" in world.get("pods", "p")["metadata"]
        world.pass_time(4)
        assert world.verbs.find("pods", "default", "p") is not None
        world.pass_time(2)
        assert world.verbs.find("pods", "default", "p") is None
        assert "Killing" in world.reasons("Pod", "p")

    def test_sigkill_after_the_grace_period(self) -> None:
        world = Sandbox(delays=Delays(0, 0, stop=500))
        world.start("p", "cpu-0", restartPolicy="Always")
        world.verbs.delete("pods", "default", "p", grace=10)
        world.pass_time(9)
        assert world.verbs.find("pods", "default", "p") is not None
        world.pass_time(2)
        assert world.verbs.find("pods", "default", "p") is None

    def test_by_force(self, world: Sandbox) -> None:
        world.start("p", "h100-0", limits={GPU: "8"})
        world.verbs.delete("pods", "default", "p", grace=0)
        world.step()
        world.start("q", "h100-0", limits={GPU: "8"})
        assert world.phase("q") == "Running"


class TestAdmission:
    def test_more_cpu_than_is_left(self, world: Sandbox) -> None:
        world.start("a", "cpu-0", limits={"cpu": "60"})
        pod = world.start("b", "cpu-0", limits={"cpu": "5"})
        assert pod["status"]["phase"] == "Failed"
        assert pod["status"]["reason"] == "OutOfcpu"
        assert pod["status"]["message"] == (
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 5000, used: 60000, capacity: 64000"
        )
        assert world.reasons("Pod", "b") == ["OutOfcpu"]

    def test_more_devices_than_are_left(self, world: Sandbox) -> None:
        world.start("a", "h100-0", limits={GPU: "7"})
        pod = world.start("b", "h100-0", limits={GPU: "2"})
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "UnexpectedAdmissionError")
        assert "Requested: 2, Available: 1" in pod["status"]["message"]

    def test_room_comes_back_when_a_pod_has_ended(self, world: Sandbox) -> None:
        world.start("a", "h100-0", limits={GPU: "8"}, command=["sleep", "5"])
        world.pass_time(6)
        assert world.start("b", "h100-0", limits={GPU: "8"})["status"]["phase"] == "Running"

    def test_pods_of_other_nodes_are_left_alone(self, world: Sandbox) -> None:
        world.verbs.create("nodes", "", {"metadata": {"name": "foreign"}})
        assert world.start("p", "foreign")["status"]["phase"] == "Pending"


class TestDevices:
    def given(self, pod: Unstructured) -> str:
        return str(pod["metadata"]["annotations"].get("windlass.dev/allocated-devices"))

    def test_the_wish_is_followed(self, world: Sandbox) -> None:
        assert self.given(world.start("p", "h100-0", limits={GPU: "2"}, wish="5,2")) == "5,2"

    def test_a_taken_device_is_not_given_twice(self, world: Sandbox) -> None:
        world.start("a", "h100-0", limits={GPU: "1"}, wish="5")
        assert self.given(world.start("b", "h100-0", limits={GPU: "1"}, wish="5")) == "0"

    def test_slices_and_shares(self, world: Sandbox) -> None:
        pod = world.start("a", "a100-mig-0", limits={"nvidia.com/mig-3g.40gb": "1"})
        assert self.given(pod) == "2", "the first GPU that has such an instance"
        for number in range(16):
            assert (
                world.start(f"s{number}", "t4-0", limits={"nvidia.com/gpu.shared": "1"})["status"]["phase"] == "Running"
            )
        assert world.start("more", "t4-0", limits={"nvidia.com/gpu.shared": "1"})["status"]["phase"] == "Failed"

    def test_a_share_by_annotation(self, world: Sandbox) -> None:
        for name in ("a", "b"):
            pod = world.start(name, "h100-0", wish="2", annotations={"gpu-fraction": "0.5"})
            assert (pod["status"]["phase"], self.given(pod)) == ("Running", "2")
        assert "shared with other pods" in world.exec("a", "nvidia-smi")[0]

    def test_a_gpu_with_shares_is_not_given_whole(self, world: Sandbox) -> None:
        world.start("share", "h100-0", wish="0", annotations={"gpu-fraction": "0.5"})
        world.start("a", "h100-0", limits={GPU: "1"}, wish="1")
        assert self.given(world.start("b", "h100-0", limits={GPU: "1"}, wish="1")) == "2", "0 holds a share"
        assert world.start("c", "h100-0", limits={GPU: "6"})["status"]["phase"] == "Failed"

    def test_a_gpu_that_is_given_whole_gets_no_shares(self, world: Sandbox) -> None:
        world.start("whole", "h100-0", limits={GPU: "1"}, wish="3")
        share = world.start("share", "h100-0", wish="3", annotations={"gpu-fraction": "0.5"})
        assert (share["status"]["phase"], share["status"]["reason"]) == ("Failed", "UnexpectedAdmissionError")

    def test_an_instance_that_is_cut_on_demand(self) -> None:
        world = Sandbox([{"name": "g", "gpus": [{"model": "A100-80", "count": 2, "mig": "dynamic"}]}])
        for name in ("a", "b"):
            pod = world.start(name, "g-0", wish="1", limits={"nvidia.com/mig-1g.10gb": "1"})
            assert (pod["status"]["phase"], self.given(pod)) == ("Running", "1")
        first, second = (world.exec(name, "nvidia-smi", "-L")[0] for name in ("a", "b"))
        assert "MIG 1g.10gb" in first
        assert first != second, "each has an instance of its own"


class TestEnvironment:
    def test_what_is_missing_is_said(self, world: Sandbox) -> None:
        entry = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}
        box = {"name": "main", "image": "x", "command": ["sh", "-c", "echo $A; sleep 60"], "env": [entry]}
        pod = world.start("p", "cpu-0", containers=[box])
        assert state(pod)["waiting"] == {
            "reason": "CreateContainerConfigError",
            "message": 'configmap "settings" not found',
        }
        world.verbs.create("configmaps", "default", {"metadata": {"name": "settings"}, "data": {"a": "from config"}})
        world.pass_time(15)
        assert world.phase("p") == "Running"
        assert world.logs("p") == "from config\n"

    def test_fields_of_the_pod(self, world: Sandbox) -> None:
        field = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        other = {"name": "WHERE", "value": "on $(NODE)"}
        box = {"name": "main", "image": "x", "command": ["sleep", "infinity"], "env": [field, other]}
        world.start("p", "cpu-0", containers=[box])
        assert world.exec("p", "printenv", "WHERE") == ("on cpu-0\n", 0)


def test_a_restarted_cluster_goes_on_where_it_was(world: Sandbox) -> None:
    world.start("p", "h100-0", limits={GPU: "2"}, wish="3,4", command=["sleep", "100"])
    world.pass_time(50)
    world.restart()
    assert world.phase("p") == "Running"
    machine = world.nodes.fleet.device_manager("h100-0")
    assert machine is not None
    assert machine.pods_using(3) == ["default/p"]
    world.pass_time(49)
    assert world.phase("p") == "Running"
    world.pass_time(2)
    assert world.phase("p") == "Succeeded"
