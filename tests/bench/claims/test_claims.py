"""The claims themselves, on small workloads: what must come out whatever the numbers are, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass_bench.claims import report
from windlass_bench.claims.claim import FAILS, HOLDS, PARTLY, Claim, percentile
from windlass_bench.claims.classes import PER_CLASS
from windlass_bench.claims.oversubscription import OWN_PERCENT
from windlass_bench.claims.report import PARTS, ClaimRequest, check_claim, claim_document, claim_markdown
from windlass_bench.section import Row

QUICK = ClaimRequest(quick=True)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["apiVersion", "kind", "version", "seed", "quick", "interrupted", "items"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "windlass.dev/v1"},
        "kind": {"const": "ClaimReport"},
        "version": {"type": "string"},
        "seed": {"type": "integer"},
        "quick": {"type": "boolean"},
        "interrupted": {"type": "boolean"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["part", "claim", "verdict", "found", "conditions", "sections"],
                "additionalProperties": False,
                "properties": {
                    "part": {"enum": list(PARTS)},
                    "claim": {"type": "string", "minLength": 10},
                    "verdict": {"enum": [HOLDS, PARTLY, FAILS]},
                    "found": {"type": "string", "minLength": 10},
                    "conditions": {"type": "array", "minItems": 1, "items": {"type": "string"}},
                    "sections": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["name", "title", "note", "rows"],
                            "properties": {
                                "rows": {
                                    "type": "array",
                                    "minItems": 1,
                                    "items": {
                                        "type": "object",
                                        "additionalProperties": {"type": ["number", "string", "null"]},
                                    },
                                }
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def claims() -> dict[str, Claim]:
    """Every part once, on its quick workload."""
    return {part: check_claim(part, QUICK) for part in PARTS}


@pytest.fixture(autouse=True)
def no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDLASS_TRACES", raising=False)


def rows(claim: Claim, key: str, section: int = 0) -> dict[Any, Row]:
    return {row[key]: row for row in claim.sections[section].rows}


class TestSharing:
    def test_whole_gpus_run_one_service_each_and_sharing_runs_them_all(self, claims: dict[str, Claim]) -> None:
        found = rows(claims["sharing"], "way")
        whole = found["whole, one a service"]
        assert whole["services"] == whole["gpus_in_use"] == 20
        for way in ("MIG", "MPS, by share", "time-slicing, 4 replicas", "MPS, by memory alone"):
            assert found[way]["services"] == 80
            assert found[way]["compute_pct"] > 3 * whole["compute_pct"]

    def test_nobody_uses_more_than_is_asked_for(self, claims: dict[str, Claim]) -> None:
        """80 services with 15 % of a GPU and a tenth more for bursts can't fill 20 GPUs to 80 %."""
        for row in claims["sharing"].sections[0].rows:
            assert row["compute_pct"] < 70
            assert row["memory_pct"] <= 100
        assert claims["sharing"].verdict == PARTLY

    def test_denser_is_paid_for_in_latency(self, claims: dict[str, Claim]) -> None:
        found = rows(claims["sharing"], "way")
        tails = [found[way]["p99_x"] for way in ("whole, one a service", "MPS, by share", "MPS, by memory alone")]
        assert tails == sorted(tails)
        assert found["time-slicing, 4 replicas"]["p99_x"] > found["MPS, by share"]["p99_x"]
        assert found["MPS, by memory alone"]["compute_in_use_pct"] > 80

    def test_kernels_that_fill_a_gpu_make_small_instances_useless(self, claims: dict[str, Claim]) -> None:
        small, wide = rows(claims["sharing"], "way")["MIG"], rows(claims["sharing"], "way", 2)["MIG"]
        assert wide["p99_x"] > 10 * small["p99_x"]


class TestOversubscription:
    def test_the_park_is_one_that_runs_at_40_percent(self, claims: dict[str, Claim]) -> None:
        alone = claims["oversubscription"].sections[0].rows[0]
        assert alone["allocated_pct"] == pytest.approx(OWN_PERCENT, abs=3)
        assert alone["evictions"] == 0

    def test_it_is_used_as_far_as_work_is_offered(self, claims: dict[str, Claim]) -> None:
        found = [row for row in claims["oversubscription"].sections[0].rows if "checkpoints" in row["setting"]]
        useful = [row["useful_pct"] for row in found[:2]]
        assert useful == sorted(useful)
        assert useful[0] > 65
        for row in found:
            assert row["useful_pct"] <= row["allocated_pct"] <= 100
            assert row["useful_pct"] <= row["own_pct"] + row["extra_pct"] + 0.01

    def test_owners_do_not_notice_spare_work_that_gives_way(self, claims: dict[str, Claim]) -> None:
        found = claims["oversubscription"].sections[0].rows
        alone, queued = found[0], rows(claims["oversubscription"], "setting")["the same work, no preemption"]
        for row in found:
            if row["setting"].startswith("spare work"):
                assert row["own_pct"] == pytest.approx(alone["own_pct"], abs=0.5)
                assert row["own_wait_s"] <= alone["own_wait_s"] + 60
        assert queued["own_wait_s"] > 2 * alone["own_wait_s"]

    def test_checkpoints_save_work(self, claims: dict[str, Claim]) -> None:
        found = claims["oversubscription"].sections[0].rows
        without = rows(claims["oversubscription"], "setting")["spare work, no checkpoints"]
        like = next(
            row
            for row in found
            if row["setting"] == "spare work, checkpoints" and row["extra_pct"] == without["extra_pct"]
        )
        assert without["evictions"] > 0
        assert like["lost_pct"] < without["lost_pct"] / 2


class TestSpot:
    def test_asked_work_loses_next_to_nothing(self, claims: dict[str, Claim]) -> None:
        found = rows(claims["spot"], "setting")
        killed, asked = (found[f"spot, {how}, a checkpoint every hour"] for how in ("killed", "asked"))
        assert killed["stops"] > 0
        assert asked["lost_pct"] < killed["lost_pct"] / 10
        assert asked["useful_gpu_hours"] > killed["useful_gpu_hours"]
        assert found["on demand"]["saved_pct"] == found["on demand"]["spot_pct"] == 0

    def test_nothing_is_saved_beyond_the_price(self, claims: dict[str, Claim]) -> None:
        for row in claims["spot"].sections[0].rows:
            assert row["saved_pct"] <= 50.001

    def test_by_expected_cost_what_cannot_be_saved_stays_off_spot_nodes(self, claims: dict[str, Claim]) -> None:
        found = rows(claims["spot"], "setting")
        first, by_cost = (found[f"a third can't write any, {how}"] for how in ("spot first", "by expected cost"))
        assert by_cost["lost_pct"] < first["lost_pct"] / 10
        assert by_cost["useful_gpu_hours"] > first["useful_gpu_hours"]


class TestClasses:
    def test_spreading_strands_and_packing_does_not(self, claims: dict[str, Claim]) -> None:
        found = rows(claims["classes"], "rule")
        assert found["spread all"]["stranded_gpus"] > 2 * found["pack all"]["stranded_gpus"]
        assert found["spread all"]["training_p99_s"] > 2 * found["pack all"]["training_p99_s"]

    def test_packing_puts_all_replicas_into_one_basket(self, claims: dict[str, Claim]) -> None:
        found = rows(claims["classes"], "rule")
        assert found["pack all"]["node_halved"] > 5 * found["spread all"]["node_halved"]

    def test_by_class_no_service_is_halved_and_less_is_stranded_than_by_spreading(
        self, claims: dict[str, Claim]
    ) -> None:
        found = rows(claims["classes"], "rule")
        assert found[PER_CLASS]["node_halved"] == found[PER_CLASS]["rack_halved"] == 0
        assert found[PER_CLASS]["stranded_gpus"] < 0.7 * found["spread all"]["stranded_gpus"]
        assert found[PER_CLASS]["training_p99_s"] < found["spread all"]["training_p99_s"]

    def test_failures_cost_something_under_every_rule(self, claims: dict[str, Claim]) -> None:
        for row in claims["classes"].sections[0].rows:
            assert row["stopped_jobs"] > 0
            assert row["reschedule_gpu_h"] > 0
            assert 1 <= row["slowdown_mean"] <= row["slowdown_p99"]


class TestSpread:
    def test_packing_leaves_whole_nodes_at_every_load(self, claims: dict[str, Claim]) -> None:
        assert claims["spread"].verdict == HOLDS
        for load in (20, 60):
            found = {row["policy"]: row for row in claims["spread"].sections[0].rows if row["load_pct"] == load}
            assert found["pack"]["whole_nodes"] > 1.5 * found["spread"]["whole_nodes"] + 1
            assert found["windlass"]["whole_nodes"] > 1.5 * found["spread"]["whole_nodes"] + 1
            assert found["pack"]["large_wait_s"] <= found["spread"]["large_wait_s"]

    def test_as_many_gpus_are_free_either_way(self, claims: dict[str, Claim]) -> None:
        """At low load nothing waits, so the rules differ in where the free GPUs are and in nothing else."""
        free = [row["free_gpus"] for row in claims["spread"].sections[0].rows if row["load_pct"] == 20]
        assert max(free) - min(free) < 2


class TestLocality:
    def test_racks_matter_only_where_the_network_is_narrower(self, claims: dict[str, Claim]) -> None:
        near, far, _, singles = claims["locality"].sections[0].rows
        assert (near["racks"], far["speed_1_pct"]) == (1, pytest.approx(100))
        speeds = [far[f"speed_{narrow}_pct"] for narrow in (1, 2, 4, 8)]
        assert speeds == sorted(speeds, reverse=True)
        assert speeds[-1] < 80
        assert singles["speed_4_pct"] < far["speed_4_pct"] / 2

    def test_a_tenth_takes_slow_ethernet(self, claims: dict[str, Claim]) -> None:
        found = rows(claims["locality"], "fabric", 1)
        assert found["NVLink, 10 Gbit Ethernet"]["speed_pct"] < 10
        assert found["NVLink, 100 Gbit Ethernet"]["speed_pct"] > 30
        assert found["NVLink, 8 HDR ports a node"]["tenth_s"] is None


class TestReport:
    def test_the_document_has_its_schema(self, claims: dict[str, Claim]) -> None:
        document = json.loads(json.dumps(claim_document(list(claims.values()), QUICK, False)))
        jsonschema_rs.validate(SCHEMA, document)
        assert [item["part"] for item in document["items"]] == list(PARTS)

    def test_markdown_has_the_claim_and_every_table(self, claims: dict[str, Claim]) -> None:
        text = claim_markdown(list(claims.values()))
        for claim in claims.values():
            assert claim.claim in text
            assert f"it {claim.verdict}." in text
            for section in claim.sections:
                assert section.title in text

    def test_every_column_is_filled(self, claims: dict[str, Claim]) -> None:
        for claim in claims.values():
            for section in claim.sections:
                for column in section.columns:
                    assert any(column.key in row for row in section.rows), (section.name, column.key)

    def test_a_picture_is_drawn_where_there_is_one(self, claims: dict[str, Claim], tmp_path: Path) -> None:
        from windlass_bench.claims.plot import draw_claim

        for part in ("oversubscription", "spread"):
            draw_claim(claims[part], tmp_path / f"{part}.png")
            assert (tmp_path / f"{part}.png").stat().st_size > 5_000


class TestCommand:
    def test_one_part_as_a_document(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run_command(cli, ["bench", "claims", "--part", "locality", "-o", "json"], "windlass") == 0
        document = json.loads(capsys.readouterr().out)
        jsonschema_rs.validate(SCHEMA, document)
        assert [item["part"] for item in document["items"]] == ["locality"]

    def test_a_table_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run_command(cli, ["bench", "claims", "--part", "sharing", "--quick"], "windlass") == 0
        printed = capsys.readouterr().out
        assert "holds partly:" in printed
        assert "MPS, by share" in printed

    def test_the_same_seed_gives_the_same_bytes(self, capsys: pytest.CaptureFixture[str]) -> None:
        def printed() -> str:
            arguments = ["bench", "claims", "--part", "sharing", "--quick", "--seed", "7", "-o", "markdown"]
            assert run_command(cli, arguments, "windlass") == 0
            return capsys.readouterr().out

        assert printed() == printed()

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--part", "sharin"], "Did you mean 'sharing'"),
            (["--traces", "nowhere"], "there is no such folder"),
            (["--plot", "nowhere"], "there is no such folder"),
            (["--seed", "-1"], "seed"),
        ],
    )
    def test_mistakes_are_refused_before_anything_runs(
        self, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run_command(cli, ["bench", "claims", *arguments], "windlass") == 2
        assert words in capsys.readouterr().err

    def test_ctrl_c_prints_what_is_there(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def interrupted(request: ClaimRequest, on_progress: object) -> Claim:
            raise KeyboardInterrupt

        monkeypatch.setitem(report.CHECKS, "locality", interrupted)
        arguments = ["bench", "claims", "--part", "sharing,locality", "--quick", "-o", "json"]
        assert run_command(cli, arguments, "windlass") == 130
        document = json.loads(capsys.readouterr().out)
        assert document["interrupted"] is True
        assert [item["part"] for item in document["items"]] == ["sharing"]


def test_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([1.0, 2.0], 99) == 2.0
    assert percentile([], 99) == 0.0
