"""`check` on manifests: each file in `manifests/` is one that a guide, a chart or a person got wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.cli.check import check
from windlass.diagnose.check.all_rules import RULES
from windlass.diagnose.check.manifest import STDIN, read_manifests
from windlass.diagnose.check.rule import CheckFinding, check_all
from windlass.diagnose.evidence import load_evidence
from windlass.model.errors import InputError

MANIFESTS = Path(__file__).parent / "manifests"
NODE = """
apiVersion: v1
kind: Node
metadata: {{name: {name}, labels: {labels}}}
spec: {{taints: {taints}}}
status:
  capacity: {{cpu: 32, memory: 256Gi, pods: 110, {gpus}}}
  allocatable: {{cpu: 32, memory: 256Gi, pods: 110, {gpus}}}
"""


def found(file: str, cluster: Path | None = None) -> dict[str, CheckFinding]:
    manifests = read_manifests([MANIFESTS / file])
    return {finding.rule: finding for finding in check_all(manifests, load_evidence(cluster) if cluster else None, 0)}


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(check, list(arguments), input=stdin)


def cluster(folder: Path, *, gpus: str = "nvidia.com/gpu: 8", labels: str = "{}", taints: str = "[]") -> Path:
    dump = folder / "dump.yaml"
    dump.write_text(NODE.format(name="gpu-1", labels=labels, taints=taints, gpus=gpus))
    return dump


@pytest.mark.parametrize(
    ("file", "rule", "level", "line"),
    [
        ("mig-and-whole-gpu.yaml", "mig-and-whole-gpu", "warning", 11),
        ("queue-without-namespaces.yaml", "cluster-queue-admits-namespaces", "warning", 5),
        ("queue-covers-gpus-only.yaml", "cluster-queue-covers-requests", "error", 24),
        ("quota-with-limits-key.yaml", "quota-key", "error", 6),
        ("plugin-without-socket.yaml", "plugin-daemonset", "warning", 9),
        ("plugin-config-misplaced.yaml", "plugin-config", "warning", 1),
        ("plugin-config-one-replica.yaml", "plugin-config", "error", 6),
        ("mig-parted-wrong-devices.yaml", "mig-config", "error", 6),
        ("half-a-gpu.yaml", "gpu-whole-number", "error", 9),
        ("request-below-limit.yaml", "gpu-request-equals-limit", "error", 20),
        ("sees-all-gpus.yaml", "visible-devices-all", "warning", 9),
        ("trains-without-shm.yaml", "shared-memory", "warning", 10),
    ],
)
def test_what_is_wrong_is_named_with_its_line(file: str, rule: str, level: str, line: int) -> None:
    finding = found(file)[rule]
    assert (finding.level, finding.line) == (level, line), finding
    assert finding.message


def test_a_plugin_daemonset_must_mount_the_kubelets_sockets() -> None:
    findings = check_all(read_manifests([MANIFESTS / "plugin-without-socket.yaml"]), None, 0)
    said = [finding.message for finding in findings if finding.rule == "plugin-daemonset" and finding.level == "error"]
    assert any("/var/lib/kubelet/device-plugins" in message for message in said)


def test_against_a_cluster_the_plugin_must_match_a_gpu_node(tmp_path: Path) -> None:
    findings = check_all(
        read_manifests([MANIFESTS / "plugin-without-socket.yaml"]),
        load_evidence(cluster(tmp_path, labels="{accelerator: amd}")),
        0,
    )
    assert any("matches none of 1 GPU node(s)" in finding.message for finding in findings)


def test_both_kinds_of_gpu_are_an_error_where_no_node_has_both(tmp_path: Path) -> None:
    assert found("mig-and-whole-gpu.yaml", cluster(tmp_path))["mig-and-whole-gpu"].level == "error"
    both = cluster(tmp_path, gpus="nvidia.com/gpu: 4, nvidia.com/mig-1g.10gb: 7")
    assert found("mig-and-whole-gpu.yaml", both)["mig-and-whole-gpu"].level == "warning"


def test_taints_are_a_warning_offline_and_an_error_where_no_node_takes_it(tmp_path: Path) -> None:
    assert found("half-a-gpu.yaml").get("tolerates-gpu-taints") is None  # can't be read: one finding is enough
    pod = tmp_path / "pod.yaml"
    pod.write_text((MANIFESTS / "half-a-gpu.yaml").read_text().replace("0.5", "1"))
    offline = {finding.rule: finding for finding in check_all(read_manifests([pod]), None, 0)}
    assert offline["tolerates-gpu-taints"].level == "warning"
    tainted = cluster(tmp_path, taints="[{key: nvidia.com/gpu, value: 'true', effect: NoSchedule}]")
    against = {finding.rule: finding for finding in check_all(read_manifests([pod]), load_evidence(tainted), 0)}
    assert against["tolerates-gpu-taints"].level == "error"
    fine = {finding.rule: finding for finding in check_all(read_manifests([pod]), load_evidence(cluster(tmp_path)), 0)}
    assert "tolerates-gpu-taints" not in fine
    assert "fits-a-node" not in fine


def test_a_selector_points_out_the_lengthened_product_label(tmp_path: Path) -> None:
    spec = "{nodeSelector: {nvidia.com/gpu.product: Tesla-T4}, containers: [{name: c}]}"
    pod = f"{{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {spec}}}"
    dump = cluster(tmp_path, labels="{nvidia.com/gpu.product: Tesla-T4-SHARED}")
    findings = check_all(read_manifests([STDIN], pod), load_evidence(dump), 0)
    assert any(finding.rule == "selector-matches" and "Tesla-T4-SHARED" in finding.fix for finding in findings)


POD = "{{metadata: {{{pod}}}, spec: {{containers: [{{name: c}}]}}}}"
JOB = f"{{{{apiVersion: batch/v1, kind: Job, metadata: {{{{name: j, {{meta}}}}}}, spec: {{{{template: {POD}}}}}}}}}"


@pytest.mark.parametrize(
    ("meta", "pod", "path"),
    [
        ("annotations: {windlass.dev/duration: 2h}", "", "metadata.annotations.windlass.dev/duration"),
        ("", "annotations: {windlass.dev/duration: 2h}", "spec.template.metadata.annotations.windlass.dev/duration"),
        ("annotations: {windlass.dev/placement: pack}", "", ""),
    ],
)
def test_a_declared_duration_says_that_it_stops_the_work(meta: str, pod: str, path: str) -> None:
    manifests = read_manifests([STDIN], JOB.format(meta=meta, pod=pod))
    findings = check_all(manifests, None, 0, frozenset({"declared-duration"}))
    assert [finding.path for finding in findings] == ([path] if path else [])
    assert all("stops it after 2h, whether it is done or not" in finding.message for finding in findings)


@pytest.mark.parametrize(("queue", "is_found"), [("", True), (", kueue.x-k8s.io/queue-name: q", False)])
def test_a_maximum_execution_time_outside_of_a_queue_has_no_effect(queue: str, is_found: bool) -> None:
    meta = f"labels: {{kueue.x-k8s.io/max-exec-time-seconds: '60'{queue}}}"
    findings = check_all(read_manifests([STDIN], JOB.format(meta=meta, pod="")), None, 0)
    assert ("execution-time-in-queue" in {finding.rule for finding in findings}) is is_found


def test_a_rule_can_be_silenced_for_one_object_and_chosen_alone() -> None:
    text = (MANIFESTS / "sees-all-gpus.yaml").read_text()
    silenced = text.replace(
        "{name: monitor}", "{name: monitor, annotations: {windlass.dev/ignore: visible-devices-all}}"
    )
    rules = {finding.rule for finding in check_all(read_manifests([STDIN], silenced), None, 0)}
    assert "visible-devices-all" not in rules
    only = check_all(read_manifests([STDIN], text), None, 0, frozenset({"visible-devices-all"}))
    assert {finding.rule for finding in only} == {"visible-devices-all"}


def test_fix_changes_what_it_says_and_keeps_comments_and_order(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    before = (MANIFESTS / "request-below-limit.yaml").read_text()
    file.write_text(before)
    result = run("-f", str(file), "--fix")
    assert result.exit_code == 0, result.output
    after = file.read_text()
    assert after == before.replace("nvidia.com/gpu: 1  # too little", "nvidia.com/gpu: 2  # too little")


def test_fix_adds_a_missing_field_in_place(tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text((MANIFESTS / "queue-without-namespaces.yaml").read_text())
    assert run("-f", str(file), "--fix").exit_code == 0
    written = next(yaml.safe_load_all(file.read_text()))
    assert written["spec"]["namespaceSelector"] == {}
    assert written["spec"]["resourceGroups"][0]["coveredResources"] == ["nvidia.com/gpu"]


def test_exit_codes_and_formats_for_machines() -> None:
    file = str(MANIFESTS / "sees-all-gpus.yaml")
    assert run("-f", file).exit_code == 0
    assert run("-f", file, "--fail-on", "warning").exit_code == 1
    report = json.loads(run("-f", file, "-o", "json").stdout)
    assert report["kind"] == "CheckReport"
    row = next(finding for finding in report["findings"] if finding["rule"] == "visible-devices-all")
    assert set(row) == {"rule", "level", "object", "file", "line", "path", "message", "fix"}
    sarif = json.loads(run("-f", file, "-o", "sarif").stdout)
    assert sarif["version"] == "2.1.0"
    assert {finding["ruleId"] for finding in sarif["runs"][0]["results"]} <= set(RULES)
    assert f"::warning file={file}" in run("-f", file, "-o", "github").stdout


def test_stdin_is_a_file_like_any_other() -> None:
    result = run("-f", "-", "-o", "json", stdin=(MANIFESTS / "half-a-gpu.yaml").read_text())
    assert result.exit_code == 1
    assert "<stdin>" in result.stdout


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_mutilated_manifests_are_findings_or_one_clear_error(data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(sorted(MANIFESTS.iterdir())))
    text = file.read_text()
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 12))
        text = text[:place] + data.draw(st.text("{}[]:-,0aZ'\" \n#&*!|>%", max_size=4)) + text[place + cut :]
    complaint = _complaint(text)
    assert complaint is None or complaint.startswith("<stdin>")


def _complaint(text: str) -> str | None:
    try:
        check_all(read_manifests([STDIN], text), None, 0)
    except InputError as error:
        return str(error)
    return None


def test_files_without_an_object_are_not_said_to_run(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing here\n")
    result = CliRunner().invoke(check, ["-f", str(tmp_path / "empty.yaml")])
    assert result.exit_code == 2
    assert "there is no object" in result.output
