"""The runner: what it does to the objects, what it checks, and that a wrong expectation fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulate.scenario.stories import CLUSTER, HEADER, events, failures, loaded, played

from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import Bind, Evict
from windlass.model.plan import Plan
from windlass.simulate.scenario import play
from windlass.simulate.scenario.report import report_document, trace_lines

FULL = """
    running:
    - {job: low, queue: team, pods: 2, gpus: 8, nodes: [n-0, n-1]}
    timeline:
    - at: 1m
      submit: [{job: high, queue: team, gpus: 8, priority: 10}]
"""

WRONG = {
    "running": ("running: [low]", "low runs", "held, KUEUE_QUOTA_INSUFFICIENT"),
    "running elsewhere": (
        "{running: [{workload: high, nodes: [n-0, n-1]}], evicted: [low]}",
        "high runs on n-0, n-1",
        "it runs on n-",
    ),
    "running with others": (
        "{running: [{workload: high, pods: 2}], evicted: [low]}",
        "high runs with 2 pods",
        "it runs with 1 pods",
    ),
    "running as another flavor": (
        "{running: [{workload: high, flavor: spot}], evicted: [low]}",
        "high runs as spot",
        "it runs as default",
    ),
    "running in more domains": (
        "{running: [{workload: high, across: {host: 2}}], evicted: [low]}",
        "high runs across 2 host domains",
        "it is in n-",
    ),
    "running in slices": (
        "{running: [{workload: high, slices: {size: 2, within: host}}], evicted: [low]}",
        "high runs in slices of 2 within a host",
        "it is in n-",
    ),
    "held though it runs": ("{held: [high], evicted: [low]}", "high waits", "1 of 1 pods run"),
    "held for another reason": (
        "{held: [{workload: low, code: GPU_FULL}], evicted: [low]}",
        "low waits, GPU_FULL",
        "held, KUEUE_QUOTA_INSUFFICIENT",
    ),
    "held in other words": (
        "{held: [{workload: low, message: the weather}], evicted: [low]}",
        "low waits, “the weather”",
        "insufficient unused quota",
    ),
    "nobody evicted": (
        "{running: [high]}",
        "no workload was evicted",
        "default/low, 2 pods for default/high: InClusterQueue",
    ),
    "evicted for another": (
        "{evicted: [{workload: low, for: other}]}",
        "low was evicted for other",
        "for default/high",
    ),
    "evicted for another reason": (
        "{evicted: [{workload: low, reason: InCohortReclamation}]}",
        "low was evicted, InCohortReclamation",
        "InClusterQueue",
    ),
    "evicted in part": ("{evicted: [{workload: low, pods: 1}]}", "low was evicted, 1 pods", "2 pods"),
    "evicted though it runs": ("{evicted: [low, high]}", "high was evicted", "1 of 1 pods run"),
    "finished": ("{finished: [high], evicted: [low]}", "high has ended", "1 of 1 pods run"),
    "gone": ("{gone: [low], evicted: [low]}", "low is gone", "held, KUEUE_QUOTA_INSUFFICIENT"),
    "free": ("{free: {n-0: 3}, evicted: [low]}", "n-0 has 3 GPUs free", "are free"),
    "notes": ("{notes: [hello], evicted: [low]}", "a note says “hello”", "no notes"),
    "nobody of that name": ("{running: [nobody], evicted: [low]}", "nobody runs", "it doesn't exist"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_expectation_fails_with_what_was_seen(tmp_path: Path, case: str) -> None:
    expect, what, seen = WRONG[case]
    expect = expect if expect.startswith("{") else "{" + expect + ", evicted: [low]}"
    outcome = played(tmp_path, FULL + f"      expect: {expect}\n")
    assert not outcome.passed
    found = dict(failures(outcome))
    assert list(found) == [what]
    assert seen in found[what]


def test_the_same_expectations_the_right_way_pass(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        FULL
        + """
      expect:
        running:
        - {workload: high, pods: 1, within: host, across: {host: 1}, flavor: default}
        - {workload: high, slices: {size: 1, within: host}}
        held: [{workload: low, code: KUEUE_QUOTA_INSUFFICIENT, message: [insufficient unused quota, 8 more needed]}]
        evicted: [{workload: low, for: high, reason: InClusterQueue, pods: 2}]
        rest: 5
""",
    )
    assert failures(outcome) == []
    assert outcome.passed


def test_an_evicted_job_is_suspended_and_starts_again(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        FULL
        + """
    - at: 2m
      finish: [high]
      expect: {running: [{workload: low, pods: 2}], evicted: [low]}
""",
    )
    assert failures(outcome) == []
    assert events(outcome, "evict", "admit", "end") == [
        (60, "evict", "default/low"),
        (60, "admit", "default/high"),
        (120, "end", "default/high"),
        (120, "admit", "default/low"),
    ]


def test_an_evicted_pod_comes_back_only_if_something_made_it(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        """
        running:
        - {pod: made, queue: team, gpus: 8, nodes: [n-0], owner: ReplicaSet/r}
        - {pod: lone, queue: team, gpus: 8, nodes: [n-1]}
        timeline:
        - at: 1m
          submit: [{job: high, queue: team, pods: 2, gpus: 8, priority: 10}]
          expect: {running: [high], evicted: [made, lone], held: [made], gone: [lone]}
        """,
    )
    assert failures(outcome) == []


def test_work_ends_after_its_duration_and_starts_anew_after_an_eviction(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        """
        timeline:
        - at: 0s
          submit: [{job: long, queue: team, pods: 2, gpus: 8, duration: 1h}]
        - at: 10m
          submit: [{job: high, queue: team, pods: 2, gpus: 8, priority: 10, duration: 20m}]
        - at: 3h
          expect: {finished: [long, high], evicted: [long]}
        """,
    )
    assert failures(outcome) == []
    assert events(outcome, "end") == [(30 * 60, "end", "default/high"), (90 * 60, "end", "default/long")]


def test_partial_admission_starts_fewer_pods_and_an_eviction_restores_the_wish(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        """
        running:
        - {job: other, queue: team, gpus: 8, nodes: [n-0], priority: 5}
        timeline:
        - at: 0s
          submit: [{job: part, queue: team, pods: 16, gpus: 1, minimum: 4}]
          expect: {running: [{workload: part, pods: 8}], rest: 2}
        - at: 1m
          submit: [{job: high, queue: team, gpus: 8, priority: 10}]
          expect: {running: [high], evicted: [part]}
        - at: 2m
          finish: [other, high]
          expect: {running: [{workload: part, pods: 16}]}
        """,
    )
    assert failures(outcome) == []


def test_termination_takes_time(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        FULL
        + """
    - at: 80s
      expect: {evicted: [low], free: {n-0: 0}}
    - at: 90s
      expect: {running: [high]}
""",
        HEADER + CLUSTER + "termination: 30s\n",
    )
    assert failures(outcome) == []
    assert events(outcome, "evict", "gone", "admit") == [
        (60, "evict", "default/low"),
        (90, "gone", "default/low"),
        (90, "admit", "default/high"),
    ]


def test_a_failed_node_loses_its_pods_and_can_be_repaired(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        """
        running:
        - {pod: made, gpus: 8, nodes: [n-0], owner: ReplicaSet/r}
        - {pod: lone, gpus: 8, nodes: [n-1]}
        timeline:
        - at: 1m
          fail: [n-0, n-1]
          expect: {held: [made], gone: [lone]}
        - at: 2m
          repair: [n-1]
          expect: {running: [{workload: made, nodes: [n-1]}]}
        """,
        HEADER + "fleet:\n- {name: n, count: 2, gpus: 8xH100}\n",
    )
    assert failures(outcome) == []


def test_objects_can_be_changed_and_deleted(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        """
        timeline:
        - at: 0s
          change: [{object: ClusterQueue/team, merge: {spec: {stopPolicy: Hold}}}]
          submit: [{job: a, queue: team, gpus: 1}, {job: b, queue: team, gpus: 1}]
          expect: {held: [a, b]}
        - at: 1m
          delete: [Job/b]
          change: [{object: ClusterQueue/team, merge: {spec: {stopPolicy: null}}}]
          expect: {running: [a], gone: [b]}
        - at: 2m
          delete: [Job/a, Node/n-0]
          expect: {gone: [a]}
        """,
    )
    assert failures(outcome) == []


def test_an_owner_without_a_queue_makes_its_pods_at_once(tmp_path: Path) -> None:
    outcome = played(
        tmp_path,
        """
        timeline:
        - at: 0s
          submit: [{job: loose, pods: 3, gpus: 4}]
        """,
        HEADER + "fleet:\n- {name: n, gpus: 8xH100}\n",
    )
    assert events(outcome, "bind", "hold") == [
        (0, "bind", "default/loose-0"),
        (0, "bind", "default/loose-1"),
        (0, "hold", "default/loose-2"),
    ]


def test_two_runs_are_equal(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, FULL)
    assert report_document([play(scenario)]) == report_document([play(scenario)])


class TestAgainstAnEngineThatIsWrong:
    """The runner notices what no scenario expects."""

    def test_nodes_are_never_given_more_than_they_have(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def everything_on_one_node(snapshot: Snapshot, *_: object) -> Plan:
            rows = snapshot.pods.pending().tolist()
            return Plan([Bind(snapshot.pods.objects[row].key, "n-0") for row in rows], ())

        monkeypatch.setattr("windlass.simulate.driver.decide", everything_on_one_node)
        outcome = played(tmp_path, "timeline:\n- at: 0s\n  submit: [{pod: a, gpus: 6, count: 2}]\n")
        assert ("n-0 is not overcommitted", "12 nvidia.com/gpu of 8 are in use") in failures(outcome)

    def test_it_has_to_come_to_rest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def to_and_fro(snapshot: Snapshot, *_: object) -> Plan:
            pod = next(pod for pod in snapshot.pods.objects if pod is not None and pod.key == "default/a")
            if pod.is_bound:
                return Plan((), (), evicts=(Evict("default/a", ("default/a",), "", "Whim"),))
            return Plan([Bind("default/a", "n-0")], ())

        monkeypatch.setattr("windlass.simulate.driver.decide", to_and_fro)
        outcome = played(tmp_path, "timeline:\n- at: 0s\n  submit: [{pod: a, owner: ReplicaSet/r}]\n")
        (what, seen), *_ = failures(outcome)
        assert what == "the cluster is stable within 40 rounds"
        assert "still changing" in seen

    def test_rest_looks_at_later_rounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def late(snapshot: Snapshot, config: object, now: float, memo: object) -> Plan:
            return Plan([Bind("default/a", "n-0")] if now % 60 == 3 else [], ())

        monkeypatch.setattr("windlass.simulate.driver.decide", late)
        outcome = played(tmp_path, "timeline:\n- at: 0s\n  submit: [{pod: a}]\n  expect: {rest: 5}\n")
        ((what, seen),) = failures(outcome)
        assert what == "nothing changes in 5 further rounds"
        assert seen.startswith("3 s later")


def test_trace_reads_in_order(tmp_path: Path) -> None:
    lines = list(trace_lines(played(tmp_path, FULL + "      say: Here it comes.\n      expect: {running: [low]}\n")))
    assert lines[0] == "story: a test"
    text = "\n".join(lines)
    assert (
        text.index("# Here it comes.") < text.index("submit    Job default/high") < text.index("evict     default/low")
    )
    assert "✗ low runs" in text
    assert "seen instead: held, KUEUE_QUOTA_INSUFFICIENT" in text
    assert lines[-1].startswith("FAIL  0 of 2 expectations hold")


def test_a_pod_without_a_spec_asks_for_nothing_and_runs(tmp_path: Path) -> None:
    timeline = """
    timeline:
    - at: 0s
      submit: [{apiVersion: v1, kind: Pod, metadata: {name: bare}}]
      expect: {running: [bare]}
"""
    assert not failures(played(tmp_path, timeline))
