"""What the node agent does for the operator: GPUs held out of service, resets, validation, faults as they are now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.node.machines import machine

from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.health_journal import HealthJournal, write_journal
from windlass.node.operator_link import NodeRequest, decode_answer, decode_faults
from windlass.node.operator_requests import OperatorRequests, read_held
from windlass.node.reporter import Reporter


class Agent:
    def __init__(self, state: Path) -> None:
        self.state, self.backend = state, machine()
        self.uuids = [gpu.uuid for gpu in self.backend.inventory().gpus]
        self.resets: list[str] = []
        self.backend.reset = self.resets.append  # type: ignore[method-assign]
        self.answers: list[str] = []
        self.holders: dict[str, list[DeviceHolder]] = {}
        self.requests = OperatorRequests(
            self.backend, state, holders=lambda: self.holders, write_answer=self.answers.append, log=lambda line: None
        )

    def see(self, **annotations: str) -> None:
        names = {key.replace("_", "-"): value for key, value in annotations.items()}
        node: dict[str, Any] = {"metadata": {"annotations": {f"windlass.dev/{key}": v for key, v in names.items()}}}
        self.requests.on_node(node)

    def ask(self, action: str, device: int = 3, **more: str) -> None:
        self.see(node_request=msgspec.json.encode(NodeRequest("1", action, device)).decode(), **more)
        self.requests.work()


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def answer(agent: Agent) -> tuple[str, str]:
    (text,) = agent.answers
    found = decode_answer(text)
    assert found is not None
    return found.state, found.message


def test_held_gpus_are_written_for_the_plugin_and_released_again(agent: Agent) -> None:
    agent.see(held_devices="3,5")
    assert read_held(agent.state) == {agent.uuids[3], agent.uuids[5]}
    agent.see()
    assert read_held(agent.state) == frozenset()


def test_a_gpu_that_no_pod_holds_is_reset_once(agent: Agent) -> None:
    agent.ask("reset")
    assert (agent.resets, answer(agent)) == ([agent.uuids[3]], ("Done", ""))
    agent.requests.work()
    agent.ask("reset", node_answer=agent.answers[0])  # the node shows request and answer
    assert len(agent.resets) == 1


def test_a_gpu_in_use_is_not_reset(agent: Agent) -> None:
    agent.holders = {agent.uuids[3]: [DeviceHolder("train", "team", "main")]}
    agent.ask("reset")
    assert (agent.resets, answer(agent)) == ([], ("Failed", "train still uses the GPU"))


def test_validation_is_answered_when_the_gpu_is_healthy_again(agent: Agent) -> None:
    journal = agent.state / "health.json"
    write_journal(journal, HealthJournal(unhealthy={agent.uuids[3]: "Xid 48"}))
    agent.ask("validate")
    assert agent.answers == []
    write_journal(journal, HealthJournal())
    agent.requests.work()
    assert answer(agent) == ("Done", "")


@pytest.mark.parametrize(("action", "device", "words"), [("reboot", -1, "can't reboot"), ("reset", 99, "no GPU 99")])
def test_what_it_cant_do_is_refused(agent: Agent, action: str, device: int, words: str) -> None:
    agent.ask(action, device)
    state, message = answer(agent)
    assert state == "Failed"
    assert words in message


def test_faults_are_annotated_with_their_action_and_held_gpus_are_not_offered(tmp_path: Path) -> None:
    from tests.node.test_sidecar import FakeApi

    agent, api = Agent(tmp_path), FakeApi()
    agent.see(held_devices="1")
    reset, ecc = "drain the GPU and reset it", agent.uuids[3]
    journal = HealthJournal(
        unhealthy={ecc: "Xid 48: double-bit ECC error"}, actions={ecc: reset}, ailments={ecc: ["xid-48"]}
    )
    write_journal(tmp_path / "health.json", journal)
    Reporter(agent.backend, api, tmp_path / "health.json", pods=dict, holders=dict).report()  # type: ignore[arg-type]
    annotations = api.patches[0]["annotations"]
    (fault,) = decode_faults(annotations["windlass.dev/device-faults"])
    assert (fault.device, fault.fault, fault.action) == (3, "Xid 48", "reset")
    assert annotations["windlass.dev/unhealthy-devices"] == "1,3"
