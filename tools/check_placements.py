"""Checks a file of placements against the trace, without any code of Windlass: standard library, loops, dictionaries.

    windlass simulate openb/default --policy fgd,windlass --placements placements.csv -o json > report.json
    python tools/check_placements.py placements.csv --traces DIR --report report.json

For every run in the file it plays the trace again, puts each pod where the file says, and confirms that

- every placed pod exists in the trace, has arrived, and is placed once;
- it gets as many devices as it asks for, of a model that it allows, each with the share that it asks for;
- no device, no CPU and no memory is ever over-committed;
- a pod that fits somewhere is placed: of what was dropped or kept waiting, nothing would have fitted at its turn;
- with `--report`, pods placed and milli-GPUs allocated are what the simulator said.

It knows openb (the published arrival orders) and files in our own CSV format with its plain columns. Prints a line for
each run; exit 1 with the line of the file at the first violation, 2 if it can't read something.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

WHOLE = 1000
COLUMNS = ["trace", "policy", "seed", "pod", "node", "devices", "time"]
JOB_COLUMNS = {"job", "arrival", "duration", "pods", "cpu", "memory", "gpu", "gpu_milli", "models"}
SUFFIXES: dict[str, Fraction | int] = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "m": Fraction(1, 1000),
    "k": 10**3,
}
SUFFIXES |= {"M": 10**6, "G": 10**9, "T": 10**12}


class Violation(Exception):
    """The file claims something that can't be, or leaves out something that must be."""


class Unreadable(Exception):
    """Not something that this checker knows how to check."""


@dataclass(frozen=True)
class Shape:
    """What a pod asks for: milli-CPU, bytes, devices, thousandths of each, allowed models (none: any)."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: frozenset[str]


@dataclass
class Machine:
    name: str
    cpu: int
    memory: int
    model: str
    devices: list[int]

    def has_room(self, shape: Shape) -> bool:
        if self.cpu < shape.cpu or self.memory < shape.memory:
            return False
        if not shape.gpus:
            return True
        if shape.models and self.model not in shape.models:
            return False
        return sum(free >= shape.milli for free in self.devices) >= shape.gpus

    def take(self, shape: Shape, devices: list[tuple[int, int]]) -> None:
        if len(devices) != shape.gpus or len({index for index, _ in devices}) != shape.gpus:
            raise Violation(f"got {len(devices)} devices, some twice or not as many as it asks for ({shape.gpus})")
        if shape.gpus and shape.models and self.model not in shape.models:
            raise Violation(f"{self.name} has {self.model}, it allows {'|'.join(sorted(shape.models))}")
        for index, milli in devices:
            if not 0 <= index < len(self.devices):
                raise Violation(f"{self.name} has no device {index}")
            if milli != shape.milli:
                raise Violation(f"got {milli} milli of device {index}, asks for {shape.milli}")
            if self.devices[index] < milli:
                raise Violation(f"device {index} of {self.name} is over-committed")
        if self.cpu < shape.cpu:
            raise Violation(f"the CPU of {self.name} is over-committed")
        if self.memory < shape.memory:
            raise Violation(f"the memory of {self.name} is over-committed")
        self._add(shape, devices, -1)

    def give_back(self, shape: Shape, devices: list[tuple[int, int]]) -> None:
        self._add(shape, devices, 1)

    def _add(self, shape: Shape, devices: list[tuple[int, int]], sign: int) -> None:
        self.cpu += sign * shape.cpu
        self.memory += sign * shape.memory
        for index, milli in devices:
            self.devices[index] += sign * milli


@dataclass(frozen=True)
class Arrival:
    """A job: its pods by name, all of which start at once."""

    pods: list[tuple[str, Shape]]
    time: int = 0
    duration: int | None = None


@dataclass(frozen=True)
class Trace:
    machines: list[Machine]
    arrivals: list[Arrival]
    waits: bool
    """What finds no room waits; else it is dropped."""


@dataclass(frozen=True)
class Claim:
    """One line of the file."""

    line: int
    pod: str
    node: str
    devices: list[tuple[int, int]]
    time: int


@dataclass
class Replay:
    """The trace once more, with every placement as the file says."""

    trace: Trace
    claims: list[Claim]
    machines: dict[str, Machine] = field(init=False)
    placed: int = 0
    allocated: int = 0
    most_allocated: int = 0
    fits_nowhere: set[Shape] = field(default_factory=set)
    """Shapes known to fit nowhere; forgotten when something leaves."""

    def __post_init__(self) -> None:
        self.machines = {machine.name: machine for machine in self.trace.machines}
        self.of_pod: dict[str, Claim] = {}
        known = {pod for arrival in self.trace.arrivals for pod, _ in arrival.pods}
        for claim in self.claims:
            if claim.pod not in known:
                raise Violation(f"line {claim.line}: {claim.pod}: no such pod arrives in the trace")
            if claim.pod in self.of_pod:
                raise Violation(f"line {claim.line}: {claim.pod}: placed before, on line {self.of_pod[claim.pod].line}")
            if claim.node not in self.machines:
                raise Violation(f"line {claim.line}: {claim.pod}: no node {claim.node}")
            self.of_pod[claim.pod] = claim

    def play(self) -> None:
        if any(arrival.time or arrival.duration is not None for arrival in self.trace.arrivals):
            self._play_moments()
        else:
            self._play_in_order()

    def _play_in_order(self) -> None:
        """Nothing leaves: one arrival after another, each on what the ones before have left."""
        for arrival in self.trace.arrivals:
            if not self._start(arrival):
                self._must_not_fit(arrival, "at its turn")

    def _play_moments(self) -> None:
        """At each moment: what ends, then what starts; what waits or is dropped must not fit afterwards."""
        running: list[tuple[int, Arrival]] = []
        waiting: list[Arrival] = []
        starts, moments = self._timetable()
        todo = sorted(self.trace.arrivals, key=lambda arrival: arrival.time, reverse=True)
        for now in sorted(moments):
            running = self._end(running, now)
            while todo and todo[-1].time <= now:
                waiting.append(todo.pop())
            for arrival in starts.get(now, ()):
                self._start(arrival)
                if arrival.duration is not None:
                    running.append((now + arrival.duration, arrival))
            waiting = [arrival for arrival in waiting if self._start_time(arrival) != now]
            for arrival in waiting:
                self._must_not_fit(arrival, f"at second {now}")
            if not self.trace.waits:
                waiting = []

    def _timetable(self) -> tuple[dict[int, list[Arrival]], set[int]]:
        """Which jobs start when, in the order of the file, and every moment at which anything happens."""
        starts: dict[int, list[Arrival]] = {}
        moments: set[int] = set()
        for arrival in self.trace.arrivals:
            self._check_times(arrival)
            moments.add(arrival.time)
            start = self._start_time(arrival)
            if start is not None:
                starts.setdefault(start, []).append(arrival)
                moments |= {start, start + (arrival.duration or 0)}
        for at_once in starts.values():
            at_once.sort(key=lambda arrival: self.of_pod[arrival.pods[0][0]].line)
        return starts, moments

    def _check_times(self, arrival: Arrival) -> None:
        claims = [self.of_pod.get(pod) for pod, _ in arrival.pods]
        if len({claim and claim.time for claim in claims}) > 1:
            raise Violation(f"the pods of the job of {arrival.pods[0][0]} don't start together")
        if claims[0] is None:
            return
        late = not self.trace.waits and claims[0].time != arrival.time
        if claims[0].time < arrival.time or late:
            raise Violation(
                f"line {claims[0].line}: {claims[0].pod}: starts at {claims[0].time}, comes at {arrival.time}"
            )

    def _start_time(self, arrival: Arrival) -> int | None:
        claim = self.of_pod.get(arrival.pods[0][0])
        return None if claim is None else claim.time

    def _start(self, arrival: Arrival) -> bool:
        """Puts the job's pods where the file says; False if the file says nothing of it."""
        claims = [self.of_pod.get(pod) for pod, _ in arrival.pods]
        if all(claim is None for claim in claims):
            return False
        for (pod, shape), claim in zip(arrival.pods, claims, strict=True):
            if claim is None:
                raise Violation(f"{pod}: not placed, though other pods of its job are")
            try:
                self.machines[claim.node].take(shape, claim.devices)
            except Violation as violation:
                raise Violation(f"line {claim.line}: {pod}: {violation}") from None
            self.placed += 1
            self.allocated += shape.gpus * shape.milli
        self.most_allocated = max(self.most_allocated, self.allocated)
        return True

    def _end(self, running: list[tuple[int, Arrival]], now: int) -> list[tuple[int, Arrival]]:
        ending = [arrival for end, arrival in running if end <= now]
        for arrival in ending:
            self.fits_nowhere.clear()
            for pod, shape in arrival.pods:
                self.machines[self.of_pod[pod].node].give_back(shape, self.of_pod[pod].devices)
                self.allocated -= shape.gpus * shape.milli
        return [(end, arrival) for end, arrival in running if end > now]

    def _must_not_fit(self, arrival: Arrival, when: str) -> None:
        """Jobs of several pods are left out: whether they fit together is a search, not a look at each node."""
        if len(arrival.pods) > 1:
            return
        pod, shape = arrival.pods[0]
        if shape in self.fits_nowhere:
            return
        room = next((machine.name for machine in self.machines.values() if machine.has_room(shape)), None)
        if room is not None:
            raise Violation(f"{pod}: not placed, and would have fitted on {room} {when}")
        self.fits_nowhere.add(shape)


def read_claims(path: Path) -> dict[RunKey, list[Claim]]:
    """The claims of every run in the file."""
    runs: dict[RunKey, list[Claim]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        if next(rows, None) != COLUMNS:
            raise Unreadable(f"{path}:1: expected the columns {','.join(COLUMNS)}")
        for row in rows:
            try:
                trace, policy, seed, pod, node, devices, time = row
                claim = Claim(rows.line_num, pod, node, list(read_devices(devices)), int(time))
            except ValueError as error:
                raise Unreadable(f"{path}:{rows.line_num}: {error}") from None
            runs.setdefault(run_key(trace, policy, seed), []).append(claim)
    return runs


def read_devices(text: str) -> Iterator[tuple[int, int]]:
    """`0:1000;1:1000`: device and thousandths of it."""
    for part in text.split(";") if text else ():
        index, _, milli = part.partition(":")
        yield int(index), int(milli)


def read_trace(name: str, seed: str, traces: Path | None) -> Trace:
    if name.endswith(".csv"):
        return read_own(Path(name))
    family, _, pods = name.partition("/")
    if family not in ("openb", "openb-all") or traces is None:
        raise Unreadable(f"{name}: this checker reads openb (with --traces) and CSV traces of our own format")
    return read_openb(traces, "gpu" if family == "openb" else "all", pods, int(seed))


def read_openb(traces: Path, park: str, pods: str, seed: int) -> Trace:
    machines = [
        machine(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]) * 2**20, int(row["gpu"]), row["model"])
        for row in read_rows(traces / f"openb/openb_node_list_{park}_node.csv")
    ]
    rows = list(read_rows(traces / f"openb/openb_pod_list_{pods}.csv"))
    shapes: dict[Shape, Shape] = {}
    arrivals = []
    times_seen = [0] * len(rows)
    for number in arrival_order(traces / f"openb-arrivals/{pods}.txt.gz", seed):
        row = rows[number]
        copy = times_seen[number]
        times_seen[number] += 1
        name = f"default/{row['name']}" + (f"-copy-{copy}" if copy else "")
        shape = Shape(
            cpu=int(row["cpu_milli"]),
            memory=int(row["memory_mib"]) * 2**20,
            gpus=int(row["num_gpu"]),
            milli=int(row["gpu_milli"]),
            models=frozenset(filter(None, (row.get("gpu_spec") or "").split("|"))),
        )
        arrivals.append(Arrival([(name, shapes.setdefault(shape, shape))]))
    return Trace(machines, arrivals, waits=False)


def arrival_order(path: Path, seed: int) -> list[int]:
    with gzip.open(path, "rt", encoding="ascii") as file:
        for line in file:
            kind, of_seed, *numbers = line.split()
            if kind == "pods" and int(of_seed) == seed:
                return [int(number) for number in numbers]
    raise Unreadable(f"{path}: no published order for seed {seed}")


def read_own(path: Path) -> Trace:
    """Our own CSV format, its plain columns."""
    mark = path.open(encoding="utf-8").readline().rstrip("\n")
    settings, _, nodes = mark.partition(" nodes=")
    if not settings.startswith("# windlass-trace 1") or not nodes:
        raise Unreadable(f"{path}:1: expected `# windlass-trace 1 … nodes=FILE`")
    machines = []
    for row in read_rows(path.parent / nodes, skip=1):
        plain(
            row,
            {"node", "count", "cpu", "memory", "gpu", "model", "labels", "pods", "gpu_memory"},
            path.parent / nodes,
        )
        count = int(row.get("count") or 1)
        names = [row["node"]] if count == 1 else [f"{row['node']}-{index}" for index in range(count)]
        size = (milli_cpu(row["cpu"]), whole(row["memory"]), int(row.get("gpu") or 0), row.get("model") or "")
        machines += [machine(name, *size) for name in names]
    jobs: dict[str, Arrival] = {}
    shapes: dict[str, list[Shape]] = {}
    for row in read_rows(path, skip=1):
        plain(row, JOB_COLUMNS, path)
        shapes.setdefault(row["job"], []).extend([own_shape(row)] * int(row.get("pods") or 1))
        duration = int(row["duration"]) if row.get("duration") else None
        jobs[row["job"]] = Arrival([], int(row.get("arrival") or 0), duration)
    for job, arrival in jobs.items():
        several = len(shapes[job]) > 1
        arrival.pods.extend(
            (f"default/{job}-{index}" if several else f"default/{job}", shape)
            for index, shape in enumerate(shapes[job])
        )
    return Trace(machines, list(jobs.values()), waits="retry=no" not in settings.split())


def own_shape(row: dict[str, str]) -> Shape:
    gpus = int(row.get("gpu") or 0)
    models = frozenset(filter(None, (row.get("models") or "").split("|")))
    milli = int(row.get("gpu_milli") or WHOLE) if gpus else 0
    return Shape(milli_cpu(row.get("cpu") or "0"), whole(row.get("memory") or "0"), gpus, milli, models)


def machine(name: str, cpu: int, memory: int, gpus: int, model: str) -> Machine:
    return Machine(name, cpu, memory, model, [WHOLE] * gpus)


def quantity(text: str) -> Fraction:
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    return Fraction(text)


def milli_cpu(text: str) -> int:
    return -int(-quantity(text) * 1000 // 1)


def whole(text: str) -> int:
    return -int(-quantity(text) // 1)


def plain(row: dict[str, str], known: set[str], path: Path) -> None:
    strange = [column for column, cell in row.items() if cell and column not in known]
    if strange:
        raise Unreadable(f"{path}: column {strange[0]!r} is more than this checker understands")


def read_rows(path: Path, skip: int = 0) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        for _ in range(skip):
            file.readline()
        yield from csv.DictReader(file)


RunKey = tuple[str, str, str]
"""Trace, policy and seed."""


def run_key(trace: str, policy: str, seed: object) -> RunKey:
    """A public trace without a seed is played with 42; a file needs none."""
    default = "" if trace.endswith(".csv") else "42"
    return trace, policy, default if seed in (None, "") else str(seed)


def reported(path: Path) -> dict[RunKey, tuple[int, int]]:
    """Pods placed and milli-GPUs allocated of every run, as the simulator's document has them."""
    items = json.loads(path.read_text(encoding="utf-8"))["items"]
    return {
        run_key(item["trace"], item["policy"], item["seed"]): (
            item["pods_placed"],
            item["gpu_milli_allocated"],
        )
        for item in items
    }


def check(path: Path, traces: Path | None, report: Path | None) -> Iterable[str]:
    """A line for each run; raises at the first violation."""
    runs = read_claims(path)
    expected = {} if report is None else reported(report)
    for key, (pods, _) in expected.items():
        if pods and key not in runs:
            raise Violation(f"{' '.join(key)}: reported, but without a placement")
    for key, claims in runs.items():
        try:
            yield f"{' '.join(filter(None, key))}: {check_run(key, claims, traces, expected if report else None)}"
        except Violation as violation:
            raise Violation(f"{' '.join(key)}: {violation}") from None


def check_run(
    key: RunKey, claims: list[Claim], traces: Path | None, expected: dict[RunKey, tuple[int, int]] | None
) -> str:
    trace, _, seed = key
    replay = Replay(read_trace(trace, seed, traces), claims)
    total = WHOLE * sum(len(machine.devices) for machine in replay.trace.machines)
    replay.play()
    found = (replay.placed, replay.most_allocated)
    if expected is not None and expected.get(key) != found:
        raise Violation(f"reported {expected.get(key)} pods placed and milli-GPUs allocated, the file has {found}")
    arrived = sum(len(arrival.pods) for arrival in replay.trace.arrivals)
    return (
        f"{replay.placed:,} of {arrived:,} pods placed, {found[1]:,} of {total:,} milli-GPU allocated "
        f"({100 * found[1] / max(total, 1):.3f} %), nothing over-committed, nothing left out that fitted"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks placements against the trace.")
    parser.add_argument("placements", type=Path)
    parser.add_argument("--traces", type=Path, help="folder of the public trace files")
    parser.add_argument("--report", type=Path, help="what `windlass simulate -o json` printed for the same runs")
    options = parser.parse_args()
    try:
        for line in check(options.placements, options.traces, options.report):
            print(line)
    except Violation as violation:
        print(f"{options.placements}: {violation}", file=sys.stderr)
        return 1
    except (Unreadable, OSError, KeyError, ValueError) as error:
        print(f"can't check: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
