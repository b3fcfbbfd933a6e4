"""What counts: NVIDIA's catalogue, and the original's two variables over it."""

from __future__ import annotations

import pytest
from tests.sharing.gpus import gpu, inventory

from windlass.node.backend import protocol
from windlass.node.backend.protocol import Fault
from windlass.node.health import HealthTracker
from windlass.node.health_rules import HealthRules, health_rules_from_environment
from windlass.node.xid import lookup_xid

APPLICATION = (13, 31, 43, 45, 68)
"""Faults of an application, which the original ignores without being told."""
FATAL = (48, 79, 95, 119)
CARD = gpu("H100")


def rules(off: str = "", on: str = "") -> HealthRules:
    return health_rules_from_environment({"DP_DISABLE_HEALTHCHECKS": off, "DP_ENABLE_HEALTHCHECKS": on})


class TestVariables:
    @pytest.mark.parametrize(
        ("words", "numbers"),
        [
            ("", set()),
            (",", set()),
            ("not-an-int", set()),
            ("-68", set()),
            ("68", {68}),
            ("68  ", {68}),
            (" 68", {68}),
            ("68,", {68}),
            (",68", {68}),
            ("68,67", {67, 68}),
            ("68,not-an-int,67", {67, 68}),
            ("68.5,67", {67}),
            ("²,67", {67}),
        ],
    )
    def test_numbers_are_taken_and_the_rest_is_passed_over(self, words: str, numbers: set[int]) -> None:
        assert rules(off=words).ignored_xids == numbers
        assert rules(on=words).counted_xids == numbers

    def test_by_default_an_applications_fault_changes_nothing(self) -> None:
        assert not any(rules().is_fatal(code) for code in APPLICATION)
        assert all(rules().is_fatal(code) for code in FATAL)
        assert rules().is_fatal(555), "what the catalogue doesn't name counts"

    @pytest.mark.parametrize("word", ["all", "xids", "ALL", " xids ", "48,all", "Xids,79"])
    def test_all_can_be_ignored(self, word: str) -> None:
        assert not any(rules(off=word).is_fatal(code) for code in (*APPLICATION, *FATAL, 555))

    @pytest.mark.parametrize("word", ["all", "xids"])
    def test_all_can_be_counted_also_what_is_ignored(self, word: str) -> None:
        for found in (rules(on=word), rules(off="all", on=word), rules(off="13,48", on=word)):
            assert all(found.is_fatal(code) for code in (*APPLICATION, *FATAL, 555))

    def test_one_that_is_counted_by_number_counts_whatever_else_is_said(self) -> None:
        assert rules(on="13").is_fatal(13)
        assert not rules(on="13").is_fatal(31)
        assert rules(off="48", on="48").is_fatal(48)
        only = rules(off="all", on="31")
        assert [code for code in (*APPLICATION, *FATAL) if only.is_fatal(code)] == [31]

    def test_one_that_is_ignored_is_not_even_told(self) -> None:
        book = HealthTracker(rules(off="31,48"), lambda: 0.0)
        book.on_faults([Fault(uuid=CARD.uuid, xid=31), Fault(uuid=CARD.uuid, xid=48)], inventory(CARD))
        assert not book.unhealthy()
        assert not book.drain_changes()

    def test_one_that_is_ignored_and_counted_counts(self) -> None:
        for off in ("13", "all"):
            book = HealthTracker(rules(off=off, on="13"), lambda: 0.0)
            book.on_faults([Fault(uuid=CARD.uuid, xid=13)], inventory(CARD))
            assert "Xid 13" in book.unhealthy()[CARD.uuid]

    def test_ignoring_everything_leaves_only_what_is_lost(self) -> None:
        for word, unhealthy in (("xids", True), ("all", False)):
            book = HealthTracker(rules(off=word), lambda: 0.0)
            book.on_reading(CARD, {protocol.ROW_REMAP_FAILURE: 1})
            book.on_inventory(inventory(gpu("H100", switch_links=18)))
            book.on_inventory(inventory(gpu("H100", switch_links=9)))
            assert bool(book.unhealthy()) is unhealthy
        book.on_inventory(inventory(gpu("H100", is_lost=True)))
        assert "lost" in book.unhealthy()[CARD.uuid]

    def test_other_settings_stay(self) -> None:
        assert health_rules_from_environment({}, HealthRules(quiet_seconds=7)).quiet_seconds == 7


def test_where_the_catalogue_and_the_original_differ_the_catalogue_counts() -> None:
    """A context switch timeout asks for a reset of the GPU; the original lets the next pod have it."""
    assert rules().is_fatal(109)
    assert "reset" in lookup_xid(109).action.value
    for code in (63, 92, 94):
        assert not rules().is_fatal(code), "handled by the driver, or the application's own"


class TestInstances:
    OLD = "MIG-GPU-00000000-0000-0000-0000-000000000000"
    """How drivers before 470 called MIG devices: with their place in the name."""

    def test_a_fault_finds_its_instance_by_number_whatever_instances_are_called(self) -> None:
        plain = gpu("H100", cuts=[("1g.10gb", 0), ("1g.10gb", 1)])
        named = tuple(
            type(instance)(
                uuid=f"{self.OLD}/{instance.gpu_instance}/0",
                index=instance.index,
                gpu_instance=instance.gpu_instance,
                profile=instance.profile,
                start=instance.start,
                size=instance.size,
            )
            for instance in plain.instances
        )
        card = gpu("H100", cuts=[], instances=named)
        book = HealthTracker(HealthRules(), lambda: 0.0)
        book.on_faults([Fault(uuid=card.uuid, xid=95, gpu_instance=2)], inventory(card))
        assert set(book.unhealthy()) == {f"{self.OLD}/2/0"}

    def test_a_fault_of_no_instance_is_the_whole_gpus(self) -> None:
        card = gpu("H100", cuts=[("1g.10gb", 0)])
        book = HealthTracker(HealthRules(), lambda: 0.0)
        book.on_faults([Fault(uuid=card.uuid, xid=95)], inventory(card))
        assert set(book.unhealthy()) == {card.uuid}


def test_what_is_no_xid_is_said_and_ignored() -> None:
    log: list[str] = []
    found = health_rules_from_environment(
        {"DP_DISABLE_HEALTHCHECKS": "48, foo,,99999999999999999999", "DP_ENABLE_HEALTHCHECKS": "xids"},
        log=log.append,
    )
    assert found.ignored_xids == {48}
    assert found.counts_all_xids
    assert log == [
        f"warning: DP_DISABLE_HEALTHCHECKS: ignoring malformed Xid value {word!r}"
        for word in ("99999999999999999999", "foo")
    ]
