"""`make history-size`: bytes, CPU and query times of 30 days of history, of one node and of a centre of 5,000 GPUs.

Made data: jobs that come and go, idle stretches, GPUs under load with noise. Beside it, the same samples in blocks of
Debian's Prometheus, if promtool is there.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from windlass.storage.disk import Disk
from windlass.telemetry.history import gpu_metrics
from windlass.telemetry.history.reader import HistoryReader
from windlass.telemetry.history.writer import HistoryWriter
from windlass.telemetry.summaries import Summaries
from windlass.telemetry.time_view import make_time_view
from windlass.telemetry.usage import Usage, UsageKey, usage_rows
from windlass.telemetry.usage_history import (
    COVERED,
    SLOT_SECONDS,
    parse_series_name,
    read_usage,
    series_name,
    summary_of,
)

START = 20_454 * 86_400
DAY = 86_400
STEP = 30
MODEL = "NVIDIA-H100-80GB-HBM3"


class Gpu:
    """Computes for some hours, idles for some, and reports what GPUs report."""

    def __init__(self, uuid: str, rng: random.Random) -> None:
        self.uuid, self._rng = uuid, rng
        self._left, self._is_busy, self._memory, self._celsius = 0, False, 0, 35.0
        self._counters = dict.fromkeys((gpu_metrics.PCIE_REPLAYS, gpu_metrics.ECC_CORRECTED), 0)

    def sample(self) -> dict[str, int]:
        rng = self._rng
        if not self._left:
            self._is_busy = rng.random() < 0.7
            self._left = rng.randint(20, 1500)
            self._memory = rng.randint(10_000, 80_000) if self._is_busy else rng.choice((0, 0, 20_000))
        self._left -= 1
        busy = min(100, max(0, round(rng.gauss(93, 6)))) if self._is_busy else 0
        power = round(rng.gauss(600, 25)) if self._is_busy else round(rng.gauss(75, 1))
        self._celsius += 0.05 * (30 + power * 0.055 - self._celsius)
        if rng.random() < 0.0002:
            self._counters[gpu_metrics.PCIE_REPLAYS] += 1
        active = busy / 100
        return {
            gpu_metrics.UTILISATION: busy,
            gpu_metrics.MEMORY_USED: self._memory,
            gpu_metrics.MEMORY_TOTAL: 81_559,
            gpu_metrics.TEMPERATURE: round(self._celsius),
            gpu_metrics.MEMORY_TEMPERATURE: round(self._celsius + 8),
            gpu_metrics.POWER: power,
            gpu_metrics.SM_CLOCK: 1_980 - 15 * rng.randint(0, 6) if self._is_busy else 345,
            gpu_metrics.CLOCK_REASONS: 4 if self._is_busy else 1,
            gpu_metrics.SM_ACTIVE: max(0, round(active * rng.gauss(700, 30))),
            gpu_metrics.TENSOR_ACTIVE: max(0, round(active * rng.gauss(350, 30))),
            gpu_metrics.DRAM_ACTIVE: max(0, round(active * rng.gauss(250, 20))),
            gpu_metrics.ENGINE_ACTIVE: busy * 10,
            **self._counters,
            gpu_metrics.ECC_UNCORRECTED: 0,
            gpu_metrics.NVLINK_ERRORS: 0,
        }


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def node(folder: Path, days: int, prometheus: bool) -> None:
    rng = random.Random(1)
    gpus = [Gpu(f"GPU-{number:08d}-1111-2222-3333-444444444444", rng) for number in range(8)]
    writer, spent, samples = HistoryWriter(Disk(folder), STEP), 0.0, 0
    text = (folder.parent / "day.om").open("w")
    for at in range(START, START + days * DAY, STEP):
        row: dict[str, int | None] = {}
        for gpu in gpus:
            row |= {f"{gpu.uuid}/{field}": value for field, value in gpu.sample().items()}
        samples += len(row)
        started = time.process_time()
        assert writer.append(at, row)
        spent += time.process_time() - started
        if prometheus and at < START + DAY:
            text.writelines(f'm{{s="{name}"}} {value} {at}\n' for name, value in row.items())
    writer.append(START + days * DAY, {})
    text.close()
    size = size_of(folder)
    print(f"node: {samples / 1e6:.1f} M samples of 8 GPUs x 16 metrics in {days} days")
    print(
        f"  size {size / 1e6:.1f} MB, {size / samples:.2f} B a sample; 625 such nodes: {625 * size / 1e9:.1f} GB in all"
    )
    print(
        f"  writing {1e6 * spent / samples:.2f} us of CPU a sample, {spent:.0f} s in {days} days, closing days included"
    )
    reader, last = HistoryReader(Disk(folder), STEP), START + days * DAY
    uuid = gpus[0].uuid
    fields = [f"{uuid}/{field}" for field in gpu_metrics.SCALES]
    seconds = timed(lambda: [reader.points(name, last - DAY, last) for name in fields])
    print(f"  a GPU's last day, all metrics: {1000 * seconds:.0f} ms")
    seconds = timed(lambda: reader.means(f"{uuid}/{gpu_metrics.POWER}", START, last, 3600))
    print(f"  one metric of a GPU, {days} days in hours: {1000 * seconds:.0f} ms")
    if prometheus:
        compare(folder.parent, samples // days)


def compare(folder: Path, samples: int) -> None:
    path = folder / "day.om"
    lines = sorted(path.read_text().splitlines(), key=lambda line: (line.partition(" ")[0], line.rpartition(" ")[2]))
    path.write_text("# TYPE m gauge\n" + "\n".join(lines) + "\n# EOF\n")
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(path), str(folder / "blocks")]
    subprocess.run(command, check=True, capture_output=True)
    size = sum(file.stat().st_size for file in (folder / "blocks").rglob("*") if file.is_file())
    print(f"  the same samples of one day in blocks of Prometheus: {size / samples:.2f} B a sample")


def centre(folder: Path, days: int, gpus: int) -> None:
    rng = random.Random(2)
    jobs: list[tuple[int, UsageKey, int]] = []
    writer, spent, held, number = HistoryWriter(Disk(folder), SLOT_SECONDS), 0.0, 0, 0
    for slot in range(days * DAY // SLOT_SECONDS):
        jobs = [job for job in jobs if job[0] > slot]
        held = sum(job[2] for job in jobs)
        while held < 0.85 * gpus:
            size = rng.choice((1, 1, 1, 2, 4, 8, 8, 16, 64))
            number, team = number + 1, rng.randrange(40)
            key = UsageKey(f"team-{team}", f"queue-{team % 12}", f"user-{rng.randrange(300)}", f"Job t/{number}", MODEL)
            jobs.append((slot + rng.randint(1, 150), key, size))
            held += size
        row: dict[str, int | None] = {COVERED: SLOT_SECONDS}
        for _, key, size in jobs:
            busy = size * 1000 * rng.choice((SLOT_SECONDS, SLOT_SECONDS, 270))
            row[series_name(key, "computing")] = busy
            row[series_name(key, "held_idle")] = size * 1000 * SLOT_SECONDS - busy
        row[series_name(UsageKey(model=MODEL), "free")] = (gpus - held) * 1000 * SLOT_SECONDS
        row |= summaries_of(row)
        started = time.process_time()
        assert writer.append(START + slot * SLOT_SECONDS, row)
        spent += time.process_time() - started
    writer.append(START + days * DAY, {})
    end = START + days * DAY
    print(f"centre: {gpus} GPUs, {number:,} jobs in {days} days, {len(jobs)} at a time, in slots of five minutes")
    print(f"  size {size_of(folder) / 1e6:.1f} MB; writing {spent:.0f} s of CPU in all")
    for words, start, last in (
        (f"usage of {days} days by team", START, end),
        ("usage of the last day by job", end - DAY, end),
        ("usage of the last six hours by user", end - 6 * 3600, end),
    ):
        reader = HistoryReader(Disk(folder), SLOT_SECONDS)
        found = []
        seconds = timed(lambda: found.append(read_usage(reader, start, last)))  # noqa: B023  # called at once
        rows = usage_rows(found[0], "team", {})
        total = sum(found[0].by_state.values())
        assert total == gpus * 1000 * found[0].covered_seconds, "it adds up"
        print(f"  {words}: {seconds:.2f} s ({len(rows)} teams)")
    summaries = Summaries(folder)
    for words in ("the first time", "again"):
        seconds = timed(lambda: make_time_view(summaries, START, end))
        print(f"  Time view of {days} days, {words}: {seconds:.2f} s")


def summaries_of(row: dict[str, int | None]) -> dict[str, int | None]:
    usage = Usage(0, 0)
    for name, amount in row.items():
        found = parse_series_name(name)
        if found is not None and amount:
            usage.add(*found, amount)
    return {**summary_of(usage)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--gpus", type=int, default=5000)
    parser.add_argument("--part", choices=["node", "centre"], help="Only this one.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for part in ("node", "centre"):
            (Path(name) / part).mkdir()
        if given.part != "centre":
            node(Path(name) / "node", given.days, shutil.which("promtool") is not None)
        if given.part != "node":
            centre(Path(name) / "centre", given.days, given.gpus)


if __name__ == "__main__":
    main()
