"""A pytest plugin that writes down which test runs which line, and how long each test takes that passes.

`tools.mutants` loads it with `-p`; it works in every worker of pytest-xdist. The folder comes by environment.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["WINDLASS_MUTANTS_FOLDER"])
ROOMS = os.environ["WINDLASS_MUTANTS_ROOMS"].split(",")


class LinesOfTests:
    def __init__(self) -> None:
        self._coverage = coverage.Coverage(
            data_file=str(FOLDER / "lines"),
            data_suffix=True,
            source=[f"src/windlass/{room}" for room in ROOMS],
        )
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()
        self._coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        yield
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        passed = {test: seconds for test, seconds in self._seconds.items() if test not in self._failed}
        (FOLDER / f"seconds.{os.getpid()}.json").write_text(json.dumps(passed))


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(LinesOfTests())
