"""One tenant of a GPU: reads orders from standard input, works, and answers with its latencies.

Started by `record.py`, several at a time. An order is a JSON line {kind, start, seconds}; `start` is on the monotonic
clock, which all processes of a machine share. The answer is a JSON line with the number of requests and percentiles.
"""

from __future__ import annotations

import json
import sys
import time

from kinds import KINDS, Bench, Kind

BY_NAME = {kind.name: kind for kind in KINDS}


def work(bench: Bench, kind: Kind, start: float, seconds: float) -> dict[str, object]:
    for _ in range(3):
        bench.request(kind)
    time.sleep(max(0.0, start - time.monotonic()))
    until = start + seconds
    took: list[float] = []
    while time.monotonic() < until:
        begun = time.perf_counter()
        bench.request(kind)
        took.append(time.perf_counter() - begun)
        if kind.think_ms:
            time.sleep(kind.think_ms / 1000)
    took.sort()
    if not took:
        return {"requests": 0}
    at = lambda share: round(1e6 * took[min(len(took) - 1, int(share * len(took)))], 1)  # noqa: E731
    return {"requests": len(took), "p50_us": at(0.5), "p95_us": at(0.95), "p99_us": at(0.99)}


def main() -> None:
    try:
        bench = Bench()
        first: dict[str, object] = {"ready": bench.cuda.name(), "sms": bench.cuda.multiprocessors()}
    except Exception as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if order.get("allocate"):
            try:
                bench.cuda.free(bench.cuda.allocate(order["allocate"]))
                answer: dict[str, object] = {"allocated": order["allocate"]}
            except Exception as error:
                answer = {"refused": str(error)}
        else:
            try:
                answer = work(bench, BY_NAME[order["kind"]], order["start"], order["seconds"])
            except Exception as error:
                answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
