"""No number of an answer contradicts another, over random clusters: free, requested, allocatable, capacity."""

from __future__ import annotations

import re

from hypothesis import given, settings
from tests.diagnose.objects import GPU, ask, node, pod
from tests.diagnose.test_engine_agrees import clusters, evidence_of

from windlass.cli.why_survey import survey_text
from windlass.diagnose.finding import Diagnosis, NodeSummary
from windlass.diagnose.survey import survey
from windlass.diagnose.why import why
from windlass.model.requests import parse_amount
from windlass.model.unstructured import Unstructured


def amount(name: str, numbers: dict[str, str]) -> int:
    return parse_amount(name, numbers.get(name, "0"))


def expect_consistent(account: NodeSummary, asked: dict[str, str]) -> None:
    for name in account.free:
        free, requested = amount(name, account.free), amount(name, account.requested)
        allocatable, capacity = amount(name, account.allocatable), amount(name, account.capacity)
        assert 0 <= free <= allocatable <= capacity, (account.name, name)
        assert free == max(0, allocatable - requested), (account.name, name)
    for name in set(account.lacks) & set(account.free):
        assert amount(name, account.lacks) == amount(name, asked) - amount(name, account.free), (account.name, name)


def expect_agreeing(found: Diagnosis, asked: dict[str, str]) -> None:
    for account in found.nodes:
        expect_consistent(account, asked)
    held = {name: 0 for account in found.nodes for name in account.requested if "/" in name}
    for account in found.nodes:
        for name in held:
            held[name] += amount(name, account.requested)
    assert sum(holder.gpus for holder in found.holders) <= sum(held.values()) or not found.holders


def limits_of(objects: list[Unstructured], name: str) -> dict[str, str]:
    (asked,) = [tree for tree in objects if tree["kind"] == "Pod" and tree["metadata"]["name"] == name]
    limits: dict[str, str] = asked["spec"]["containers"][0]["resources"]["limits"]
    return {"pods": "1", **limits}


@settings(max_examples=200, deadline=None)
@given(clusters())
def test_numbers_of_nodes_agree(objects: list[Unstructured]) -> None:
    expect_agreeing(why(evidence_of(objects), "pod/asked", "x", 0), limits_of(objects, "asked"))


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_a_survey_counts_everything_once(objects: list[Unstructured]) -> None:
    found = survey(evidence_of(objects), "", 0)
    named = [subject for entry in found.entries for subject in entry.subjects]
    assert len(named) == len(set(named)) <= found.asked - found.not_asked
    pods = {f"Pod x/{tree['metadata']['name']}": tree for tree in objects if tree["kind"] == "Pod"}
    for entry in found.entries:
        own = [limits_of(objects, pods[name]["metadata"]["name"]) for name in entry.subjects if name in pods]
        of_nodes = any(name not in pods for name in entry.subjects)
        asked = sum(int(limits.get(GPU, "0")) for limits in own)
        assert entry.gpus == asked or (of_nodes and entry.gpus > asked), entry
    single = why(evidence_of(objects), "pod/asked", "x", 0)
    assert single.code == next((entry.code for entry in found.entries if "Pod x/asked" in entry.subjects), "NONE")


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_a_survey_says_what_the_question_below_it_is_answered_with(objects: list[Unstructured]) -> None:
    evidence = evidence_of(objects)
    found = survey(evidence, "", 0)
    for entry in found.entries:
        question, _, namespace = entry.question.partition(" -n ")
        single = why(evidence, question, namespace, 0)
        assert (entry.code, entry.headline, entry.state) == (single.code, single.headline, single.state)
        expect_headline_agrees(single)
    said = {what: int(count) for count, what in SUMMARY.findall(survey_text(found, 0, wide=False).splitlines()[0])}
    states = [entry.state for entry in found.entries]
    waiting = sum(len(entry.subjects) for entry in found.entries if entry.state == "waiting")
    assert (said.get("need", 0), said.get("only", 0)) == (states.count("blocked"), waiting), found


SUMMARY = re.compile(r"(\d+) (?:causes?|objects?) (need|only)(?!s? a look)")


FREE = re.compile(r"too few (\S+) are free: (\d+) on (\d+) matching nodes?, (\d+) needed")
COUNTED = re.compile(r"of (\d+) nodes? \(nearest: (\S+)\)|(\d+) matching nodes? takes? no pods: (\S+) is")
NEAREST = re.compile(r"nearest is (\S+), requested: (\d+) (nvidia.com/gpu) \(the node has (\d+)\)")
LACKS = re.compile(r"node (\S+)(?: has the GPUs, but)? lacks (\S+) (\S+?)(?=[ ,.])")


@settings(max_examples=300, deadline=None)
@given(clusters())
def test_the_headline_agrees_with_the_rows_below_it(objects: list[Unstructured]) -> None:
    expect_headline_agrees(why(evidence_of(objects), "pod/asked", "x", 0))


def expect_headline_agrees(found: Diagnosis) -> None:
    rows = {account.name: account for account in found.nodes}
    if said := FREE.search(found.headline):
        name, free, count, needed = said[1], *map(int, said.groups()[1:])
        able = [account for account in found.nodes if account.codes and set(account.codes) <= CAPACITY]
        assert (free, count) == (sum(amount(name, account.free) for account in able), len(able)), found
        assert free < needed, found.headline
    if said := COUNTED.search(found.headline):
        alike = [account for account in found.nodes if found.code in account.codes]
        selected = [account for account in alike if "SELECTOR_MISMATCH" not in account.codes]
        assert len(selected or alike) == int(said[1] or said[3]), found
        assert (said[2] or said[4]) in rows, found.headline
    if said := NEAREST.search(found.headline):
        assert int(said[2]) > int(said[4]) == amount(GPU, rows[said[1]].allocatable), found
        alike = [account for account in found.nodes if set(account.codes) <= set(rows[said[1]].codes)]
        assert int(said[4]) == max(amount(GPU, account.allocatable) for account in alike), found
    if said := LACKS.search(found.headline):
        assert rows[said[1]].lacks[said[3]] == said[2], found


CAPACITY = {"GPU_FULL", "GPU_FRAGMENTED", "CPU_MEM_INSUFFICIENT", "POD_COUNT_LIMIT", "EPHEMERAL_STORAGE"}
"""What a node has too little of while others' pods run on it."""


def test_devices_that_are_no_longer_advertised_are_not_less_than_none() -> None:
    found = ask("pod/asked", node("g1", {GPU: 0}, capacity={GPU: 8}), pod("old", 3, on="g1"), pod("asked", 1))
    account = next(account for account in found.nodes if account.name == "g1")
    assert (account.free[GPU], account.requested[GPU]) == ("0", "3")
    expect_agreeing(found, {GPU: "1", "cpu": "1", "memory": "1Gi"})


def test_a_node_lacks_no_more_than_is_asked_for() -> None:
    found = ask("pod/asked", node("g1", 7, capacity={GPU: 8}), pod("old", 8, on="g1"), pod("asked", 8))
    account = next(account for account in found.nodes if account.name == "g1")
    assert account.lacks[GPU] == "8"
    assert f"lacks 8 {GPU}, 1 even when empty" in account.detail


def test_the_nearest_node_is_the_one_that_lacks_least() -> None:
    found = ask("pod/asked", node("a", 1), node("b", 4), node("c", 2), pod("asked", 8))
    assert found.code == "REQUEST_EXCEEDS_CLUSTER"
    assert "nearest is b" in found.headline


def test_a_resource_that_nodes_have_is_not_said_to_be_missing() -> None:
    both = pod("asked", spec={"containers": [{"name": "c", "resources": {"limits": {GPU: "1", "rdma/ib": "1"}}}]})
    found = ask("pod/asked", node("g1", 4), node("r1", {"rdma/ib": 1}), both)
    assert "rdma/ib" in found.headline
    assert f"no node advertises {GPU};" not in found.headline.lower()
