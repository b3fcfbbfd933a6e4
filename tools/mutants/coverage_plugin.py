"""A pytest plugin that writes down which test runs which line, and how long each test takes.

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
        self._coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        yield
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        (FOLDER / f"seconds.{os.getpid()}.json").write_text(json.dumps(self._seconds))


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(LinesOfTests())
