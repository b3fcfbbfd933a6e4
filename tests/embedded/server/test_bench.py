"""`windlass bench embedded`, small and without a peer: every measurement is made, and the table says so."""

from __future__ import annotations

import asyncio

from windlass.bench.embedded.contenders import EMBEDDED
from windlass.bench.embedded.report import sections_of
from windlass.bench.embedded.run import Result, Scale, measure


def test_both_forms_are_measured() -> None:
    scale = Scale(pods=40, connections=4, watchers=2, crowd=10, nodes_kept=5, pods_kept=1100)
    results = asyncio.run(measure(scale, None, (False, True), lambda _: None))
    assert [(one.server, one.durable) for one in results] == [(EMBEDDED, False), (EMBEDDED, True)]
    for one in results:
        assert min(one.creates, one.binds, one.events, one.crowd_events) > 0
        assert one.crowd == 10
        assert one.rss_mib
    (rates,) = sections_of(results, "")
    assert len(rates.rows) == 2


def test_ratios_compare_what_is_alike() -> None:
    mine = Result(EMBEDDED, True, 200, 300, 400, 10, 50, 1)
    peer = Result("other", True, 100, 100, 100, 10, 100, 1)
    other = Result("other", False, 1, 1, 1, 1, 1, 1)
    _, ratios = sections_of([mine, peer, other], "")
    assert ratios.rows == [{"kept": "on disk", "creates": 2, "binds": 3, "events": 4, "crowd_events": 0.5}]
