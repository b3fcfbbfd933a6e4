"""What is said about an object, where no rule understands it: what its words are about, never more sure than words."""

from __future__ import annotations

import pytest
from tests.diagnose.causal_scenes import PRESENT
from tests.diagnose.objects import GPU, ask, event, node, pod
from tests.diagnose.test_words_of_the_node import uncreated

from windlass.diagnose.statements import CLUSTER, DEVICES, PLACEMENT, code_of_words

THERE = node("g1", 4, labels=PRESENT)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("failed to start: the IMEX channel of the domain could not be opened", "FABRIC_NOT_READY"),
        ("failed to mount rootfs component: no such device", "STORAGE_INSUFFICIENT"),
        ("error: apparmor profile gpu-default could not be loaded", "DEVICE_PERMISSION"),
        ("failed to reserve container name main_0", "UNKNOWN"),
        ("failed to read the MIG profile; failed to read the NVLink topology", "UNKNOWN"),
    ],
)
def test_words_name_a_cause_if_they_name_one_thing(message: str, code: str) -> None:
    found = ask("pod/asked", THERE, uncreated(message))
    assert (found.code, found.confidence) == (code, "low")
    assert message[:40] in found.headline
    assert found.next_commands


def test_names_are_no_words() -> None:
    about = (*DEVICES, *CLUSTER, *PLACEMENT)
    assert code_of_words("failed to start mig-0 of queue-7", about, ["mig-0", "queue-7"]) == ""
    assert code_of_words('failed to start "mps/volume"', about) == ""
    assert code_of_words("failed to start mig-0", about) == "MIG_CONFIG_NOT_APPLIED"


def test_who_refuses_says_more_than_what_is_refused() -> None:
    said = 'admission webhook "w" denied the request: volume x and device plugin y'
    assert code_of_words(said, CLUSTER) == "POLICY_DENIED"


def test_progress_and_counted_nodes_are_no_complaints() -> None:
    assert code_of_words("the device plugin has registered", DEVICES) == ""
    assert code_of_words("0/3 nodes are available: 3 node(s) had untolerated taint, error", PLACEMENT) == ""


def test_what_is_judged_on_nodes_is_not_judged_by_words() -> None:
    said = event("Pod/asked", "Odd", "failed: the volume of the registry", "someone")
    found = ask("pod/asked", THERE, pod("r", 4, on="g1"), pod("asked", 1), said)
    assert found.code == "GPU_FULL"
    assert GPU in found.headline
