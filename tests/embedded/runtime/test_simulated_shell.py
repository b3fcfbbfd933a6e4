"""What is seen inside a simulated container: commands, nvidia-smi, logs."""

from __future__ import annotations

import pytest
from tests.embedded.runtime.sandbox import GPU, Sandbox

from windlass.embedded.runtime.container_runtime import ContainerStartError
from windlass.embedded.runtime.environment import container_environment, expand_all
from windlass.embedded.runtime.kubelet_api import STDOUT, ExecRequest, KubeletApiError
from windlass.embedded.runtime.nvidia_smi import VisibleDevice, nvidia_smi
from windlass.embedded.runtime.simulated_containers import Delays
from windlass.embedded.runtime.simulated_shell import MAX_OUTPUT_LENGTH, ShellEnvironment, run_command

PLACE = ShellEnvironment("box", {"A": "1", "HOSTNAME": "box"}, lambda words: (f"smi {' '.join(words)}\n", 0), "today")


@pytest.fixture
def world() -> Sandbox:
    return Sandbox()


class TestBounds:
    """A few bytes of a command or an environment can stand for any amount of text."""

    def test_a_long_script_is_not_understood(self) -> None:
        done = run_command(["sh", "-c", "echo '" + "x" * 1_000_000], PLACE)
        assert (done.understood, done.exit_code) == (False, 126)
        assert "the script has more than 16384 characters" in done.errors

    @pytest.mark.parametrize("script", ["echo $B", "echo $B$B$B$B", "env"])
    def test_output_ends_somewhere(self, script: str) -> None:
        place = ShellEnvironment("box", {"B": "b" * 400_000}, lambda words: ("", 0))
        done = run_command(["sh", "-c", ";".join([script] * 1000)], place)
        assert 0 < len(done.text) <= MAX_OUTPUT_LENGTH

    @pytest.mark.parametrize("number", ["9" * 5000, "²", "٣"])
    def test_an_exit_code_that_is_none(self, number: str) -> None:
        assert run_command(["sh", "-c", f"exit {number}"], PLACE).exit_code == 2

    def test_an_environment_that_doubles_thirty_times_is_refused(self) -> None:
        doubling = [{"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(1, 31)]
        container = {"name": "main", "env": [{"name": "V0", "value": "x" * 100}, *doubling]}
        with pytest.raises(ContainerStartError, match="argument list too long"):
            container_environment({}, container, lambda resource, namespace, name: None)

    def test_so_is_a_command_of_long_variables(self) -> None:
        with pytest.raises(ContainerStartError, match="argument list too long"):
            expand_all(["$(A)"] * 100_000, {"A": "a" * 100_000})
        with pytest.raises(ContainerStartError, match="argument list too long"):
            expand_all(["$(A)" * 100_000], {"A": "a" * 100_000})

    def test_its_pod_says_so_and_others_run(self, world: Sandbox) -> None:
        doubling = [{"name": f"V{n}", "value": f"$(V{n - 1})$(V{n - 1})"} for n in range(1, 31)]
        large = {"name": "main", "image": "x", "env": [{"name": "V0", "value": "x" * 100}, *doubling]}
        world.start("large", "cpu-0", containers=[large])
        world.start("small", "cpu-0", command=["sleep", "60"])
        world.pass_time(5)
        (status,) = world.get("pods", "large")["status"]["containerStatuses"]
        assert status["state"]["waiting"]["reason"] == "CreateContainerError"
        assert "argument list too long" in status["state"]["waiting"]["message"]
        assert world.phase("small") == "Running"


class TestShell:
    @pytest.mark.parametrize(
        ("command", "text", "code"),
        [
            (["echo", "hello", "there"], "hello there\n", 0),
            (["sh", "-c", "echo $A ${A}2 '$A' \"$A b\""], "1 12 $A 1 b\n", 0),
            (["sh", "-c", "false && echo no; echo $?"], "1\n", 0),
            (["sh", "-c", "false || echo yes"], "yes\n", 0),
            (["sh", "-c", "echo a; exit 3; echo b"], "a\n", 3),
            (["sh", "-c", "false; exit; echo b"], "", 1),
            (["sh", "-c", "false; exit 256"], "", 0),
            (["sh", "-c", "echo a; exit soon"], "a\n", 2),
            (["bash", "-c", "hostname; cat /etc/hostname"], "box\nbox\n", 0),
            (["/bin/sh", "-c", "nvidia-smi -L"], "smi -L\n", 0),
            (["printenv", "A"], "1\n", 0),
            (["printenv", "B"], "", 1),
            (["true"], "", 0),
            (["false"], "", 1),
        ],
    )
    def test_what_it_knows(self, command: list[str], text: str, code: int) -> None:
        done = run_command(command, PLACE)
        assert (done.text, done.exit_code, done.understood) == (text, code, True)

    @pytest.mark.parametrize(
        ("command", "code"),
        [
            (["python", "train.py"], 127),
            (["sh"], 126),
            (["sh", "-c", "cat x | grep y"], 126),
            (["sh", "-c", "while true; do sleep 1; done"], 126),
            (["sh", "-c", "echo 'open"], 2),
        ],
    )
    def test_what_it_doesn_t_know_it_says(self, command: list[str], code: int) -> None:
        done = run_command(command, PLACE)
        assert done.exit_code == code
        assert not done.understood
        assert "simulated by windlass up" in done.errors

    def test_time(self) -> None:
        assert run_command(["sleep", "1m", "2.5"], PLACE).seconds == 62.5
        assert run_command(["sleep", "infinity"], PLACE).seconds is None
        done = run_command(["sh", "-c", "echo a; sleep 5; echo b"], PLACE)
        assert done.output == [(0.0, "a\n"), (5.0, "b\n")]


class TestNvidiaSmi:
    DEVICES = (
        VisibleDevice(
            index=0, name="NVIDIA H100 80GB HBM3", uuid="GPU-1", memory_mib=81559, used_mib=100, utilization=7
        ),
    )

    def test_table(self) -> None:
        text, code = nvidia_smi([], self.DEVICES)
        assert code == 0
        assert "NVIDIA H100 80GB HBM3" in text
        assert "100MiB /  81559MiB" in text
        assert len({len(line) for line in text.splitlines()}) == 1, "the frame is straight"

    def test_query(self) -> None:
        asked = "--query-gpu=index,name,memory.used,utilization.gpu"
        assert nvidia_smi([asked, "--format=csv"], self.DEVICES) == (
            "index, name, memory.used [MiB], utilization.gpu [%]\n0, NVIDIA H100 80GB HBM3, 100 MiB, 7 %\n",
            0,
        )
        text, _ = nvidia_smi([asked, "--format=csv,noheader,nounits"], self.DEVICES)
        assert text == "0, NVIDIA H100 80GB HBM3, 100, 7\n"
        assert nvidia_smi(["--query-gpu=nonsense", "--format=csv"], self.DEVICES)[1] == 2

    def test_without_devices(self) -> None:
        assert nvidia_smi([], ()) == ("No devices were found\n", 6)

    def test_only_the_pod_s_own(self, world: Sandbox) -> None:
        world.start("two", "h100-0", limits={GPU: "2"}, wish="3,4")
        machine = world.nodes.fleet.device_manager("h100-0")
        assert machine is not None
        text, _ = world.exec("two", "nvidia-smi", "-L")
        assert text == "".join(
            f"GPU {at}: NVIDIA H100 80GB HBM3 (UUID: {machine.uuids[index]})\n" for at, index in enumerate((3, 4))
        )
        world.start("none", "h100-0")
        assert world.exec("none", "nvidia-smi") == ("No devices were found\n", 6)

    def test_a_slice(self, world: Sandbox) -> None:
        world.start("p", "a100-mig-0", limits={"nvidia.com/mig-1g.10gb": "1"})
        text, _ = world.exec("p", "nvidia-smi", "-L")
        assert "GPU 0: NVIDIA A100 SXM4 80GB" in text
        assert "MIG 1g.10gb" in text

    def test_a_share(self, world: Sandbox) -> None:
        annotations = {"sandbox.windlass.dev/gpu-utilization": "40"}
        world.start("p", "t4-0", limits={"nvidia.com/gpu.shared": "1"}, annotations=annotations)
        text, _ = world.exec("p", "nvidia-smi")
        assert "one of 4 replicas" in text
        assert "40%" in text


class TestExec:
    def test_an_unknown_command(self, world: Sandbox) -> None:
        world.start("p", "cpu-0")
        text, code = world.exec("p", "python", "-V")
        assert code == 127
        assert "it runs no images" in text

    def test_a_container_that_has_ended(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", command=["true"])
        with pytest.raises(KubeletApiError, match="container not found"):
            world.exec("p", "true")

    def test_a_node_that_is_down(self, world: Sandbox) -> None:
        world.start("p", "cpu-0")
        world.nodes.faults.fail("node/cpu-0")
        with pytest.raises(KubeletApiError, match="can't be reached"):
            world.exec("p", "true")


class TestLogs:
    def test_the_command_s_own_words_as_time_goes_by(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", command=["sh", "-c", "echo a; sleep 5; echo b; sleep 5"])
        assert world.logs("p") == "a\n"
        world.pass_time(6)
        assert world.logs("p") == "a\nb\n"
        assert world.logs("p", tail_lines=1) == "b\n"
        assert world.logs("p", since_seconds=3) == "b\n"
        assert world.logs("p", limit_bytes=3) == "a\nb"
        assert world.logs("p", timestamps=True).startswith("2027-01-15T08:00:00.000000Z a\n")

    def test_following_ends_with_the_container(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", command=["echo", "a"])
        assert world.logs("p", follow=True) == "a\n"

    def test_lines_of_a_container_that_nothing_is_known_of(self, world: Sandbox) -> None:
        world.start("p", "h100-0", limits={GPU: "1"})
        world.pass_time(11)
        lines = world.logs("p").splitlines()
        assert len(lines) == 3
        assert "is simulated; it holds 1 GPU(s)" in lines[0]
        assert lines[1].startswith("step     10")

    def test_the_one_before(self, world: Sandbox) -> None:
        world.start("p", "cpu-0", restartPolicy="Always", command=["sh", "-c", "echo hi; sleep 1; exit 1"])
        with pytest.raises(KubeletApiError, match='previous terminated container "main" in pod "p" not found'):
            world.logs("p", previous=True)
        world.pass_time(1.5)
        assert world.logs("p", previous=True) == "hi\n"

    def test_refusals(self, world: Sandbox) -> None:
        two = [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]
        world.start("p", "cpu-0", containers=two)
        with pytest.raises(KubeletApiError, match=r"choose one of: \[a b\]"):
            world.logs("p")
        with pytest.raises(KubeletApiError, match="container c is not valid for pod p"):
            world.logs("p", container="c")
        slow = Sandbox(delays=Delays(pull=60, start=0, stop=0))
        slow.start("q", "cpu-0")
        with pytest.raises(KubeletApiError, match='container "main" in pod "q" is waiting to start: ContainerCreating'):
            slow.logs("q")


@pytest.mark.asyncio
async def test_cat_gives_back_what_it_is_given(world: Sandbox) -> None:
    world.start("p", "cpu-0", command=["sleep", "infinity"])
    session = await world.nodes.kubelet_api.exec(world.get("pods", "p"), ExecRequest(command=("cat",), stdin=True))
    await session.write(b"typed in\n")
    await session.end_input()
    assert [piece async for piece in session.output()] == [(STDOUT, b"typed in\n")]
    assert await session.exit_code() == 0
