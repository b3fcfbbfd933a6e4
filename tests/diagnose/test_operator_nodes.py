"""The operator's account of a node in the answers of `why` and `doctor`."""

from __future__ import annotations

from tests.diagnose.objects import GPU, NOW, ask, evidence, node, plugin, pod

from windlass.diagnose.doctor.cluster import examine_cluster
from windlass.diagnose.why import why
from windlass.model.names.windlass import UNHEALTHY_DEVICES_ANNOTATION
from windlass.model.unstructured import Unstructured


def operator_object(kind: str, name: str, **parts: Unstructured) -> Unstructured:
    return {"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, **parts}


def repair(name: str, device: int, phase: str, deadline: str = "") -> Unstructured:
    status = {"phase": phase, "reason": phase, "deadline": deadline}
    return operator_object("GPURepair", name, spec={"node": "gpu-7", "device": device}, status=status)


def held(*devices: int) -> Unstructured:
    rows = [{"index": d, "state": "HeldBack", "fault": "Xid 48", "repair": f"gpu-7-{d}-1"} for d in devices]
    return operator_object("GPUNode", "gpu-7", status={"phase": "Ready", "devices": rows})


ILL = node("gpu-7", {GPU: 6}, capacity={GPU: 8})
NOTE = "2 of 8 GPUs on gpu-7 are in repair until about 14:20 UTC: Xid 48 (repair gpu-7-2-1, gpu-7-5-1)"
REPAIRS = [
    repair("gpu-7-2-1", 2, "Resetting", "2026-03-01T14:10:00Z"),
    repair("gpu-7-5-1", 5, "Draining", "2026-03-01T14:20:00Z"),
]


def test_a_waiting_pod_hears_which_gpus_are_in_repair_and_until_when() -> None:
    found = ask("pod/asked", ILL, *plugin("gpu-7"), held(2, 5), *REPAIRS, pod("asked", 8))
    assert found.code == "DEVICE_UNHEALTHY"
    assert NOTE in found.evidence


def test_the_node_itself_and_the_doctor_say_the_same() -> None:
    objects = (ILL, *plugin("gpu-7"), held(2, 5), *REPAIRS)
    assert NOTE in ask("node/gpu-7", *objects).evidence
    assert NOTE in [symptom.saw for symptom in examine_cluster(evidence(objects), NOW)]


def test_a_repair_that_waits_for_a_person_promises_no_time() -> None:
    found = ask("node/gpu-7", ILL, *plugin("gpu-7"), held(2), repair("gpu-7-2-1", 2, "Ticket", "2026-03-02T00:00:00Z"))
    assert "1 of 8 GPUs on gpu-7 is in repair, and needs a person: Xid 48 (repair gpu-7-2-1)" in found.evidence


def changing(key: str) -> Unstructured:
    return node("gpu-7", 8, taints=[{"key": key, "effect": "NoSchedule", "value": "r590"}])


def test_nobody_is_told_to_tolerate_the_taint_of_a_change_or_a_repair() -> None:
    change = {"change": "r590", "reason": "Draining", "message": "1 pods hold GPUs", "deadline": "2026-03-01T13:00:00Z"}
    record = operator_object("GPUNode", "gpu-7", status={"phase": "Ready", "change": change})
    for key in ("windlass.dev/change", "windlass.dev/repair"):
        for question in ("pod/asked", "node/gpu-7"):
            found = ask(question, changing(key), record, pod("asked", 2))
            assert found.code == "NODE_UNSCHEDULABLE"
            assert "wait for the operator (windlass stack explain gpu-7); do not tolerate the taint" in found.headline
            assert "gpu-7 is being changed by r590 until about 13:00 UTC: Draining: 1 pods hold GPUs" in found.evidence
            assert not found.patches


def test_a_step_that_is_not_done_is_named() -> None:
    status = {
        "phase": "NotReady",
        "reason": "KernelHeadersMissing",
        "message": "driver Waiting: no headers for 6.8.0-41",
        "deadline": "2026-03-01T12:30:00Z",
    }
    found = ask("node/gpu-7", node("gpu-7", 8), operator_object("GPUNode", "gpu-7", status=status))
    assert found.code == "NODE_UNSCHEDULABLE"
    assert "not ready for GPU work until about 12:30 UTC: KernelHeadersMissing: driver Waiting" in found.headline


def test_a_fault_that_the_operator_suspects_is_left_to_its_repair() -> None:
    hosts = {"gpu-7": "[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."}
    alone = ask("node/gpu-7", ILL, *plugin("gpu-7"), hosts=hosts)
    found = ask("node/gpu-7", ILL, *plugin("gpu-7"), repair("gpu-7-2-1", 2, ""), hosts=hosts)
    assert (found.code, "leave it to repair gpu-7-2-1" in found.headline) == (alone.code, True)
    assert "repair gpu-7-2-1 of GPU 2 of gpu-7 is Suspected" in found.evidence
    over = ask("node/gpu-7", ILL, *plugin("gpu-7"), repair("gpu-7-2-1", 2, "Returned"), hosts=hosts)
    assert over.headline == alone.headline


def test_who_has_taken_a_gpu_out_of_service_and_why_is_told() -> None:
    ill = node("gpu-7", {GPU: 6}, capacity={GPU: 8})
    ill["metadata"]["annotations"] = {UNHEALTHY_DEVICES_ANNOTATION: "2,5"}
    quarantine = repair("gpu-7-q-1", 2, "Draining")
    quarantine["spec"] |= {"requestedBy": "alice", "fault": "wrong results in team/train"}
    found = ask("gpu/gpu-7:2", ill, *plugin("gpu-7"), quarantine)
    line = "repair gpu-7-q-1 of GPU 2 of gpu-7 is Draining, asked for by alice: wrong results in team/train"
    assert line in found.evidence
    assert "windlass repair return gpu-7-q-1" in found.headline
    assert line not in ask("gpu/gpu-7:5", ill, *plugin("gpu-7"), quarantine).evidence


def test_nobody_is_told_to_wait_for_an_operator_that_leaves_the_node_alone() -> None:
    left = operator_object("GPUNode", "gpu-7", status={"phase": "NotOurs", "reason": "StackMissing"})
    found = ask("node/gpu-7", changing("windlass.dev/gpu-not-ready"), left)
    assert "no GPUStack selects node gpu-7" in found.headline
    assert "wait for the operator" not in found.headline
    known = evidence([changing("windlass.dev/gpu-not-ready")])
    assert "wait for the operator" in why(known, "node/gpu-7", "", NOW).headline
    known.complete_kinds.add("GPUStack")
    assert "no GPUStack selects node gpu-7" in why(known, "node/gpu-7", "", NOW).headline


def test_without_the_operator_nothing_is_added() -> None:
    assert ask("pod/asked", ILL, *plugin("gpu-7"), pod("asked", 8)).evidence == ()
