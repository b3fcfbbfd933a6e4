"""What a GPU reports while it idles, holds memory, spins on one SM, computes, copies and leaks: the basis of the limits
in `windlass.telemetry.activity`.

    python tools/gpu/activity.py [--seconds 20]

Run it on a machine with an NVIDIA GPU of Hopper or later and PyTorch. Each tenant is a process of its own; `nvidia-smi
dmon` measures once a second, with the profiling values (GPM). Prints a table, and writes activity.json to $OUT or here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

WARM_UP = "import torch, time, random; torch.zeros(1).cuda(); a = torch.randn(8192, 8192, device='cuda').bfloat16()\n"
TENANTS = {
    "nobody": "",
    "context alone": "import torch, time; torch.zeros(1).cuda(); time.sleep(999)",
    "40 GiB held": "import torch, time; x = torch.zeros(40 << 30, dtype=torch.uint8).cuda(); time.sleep(999)",
    "one thread spins": "import torch\nwhile True: torch.cuda._sleep(2_000_000_000); torch.cuda.synchronize()",
    "matrix products": WARM_UP + "while True: b = a @ a",
    "products, a third of the time": WARM_UP
    + "while True:\n  t = time.time()\n  while time.time() - t < .1: b = a @ a; torch.cuda.synchronize()\n"
    "  time.sleep(.2)",
    "copies in memory": "import torch; x = torch.zeros(8 << 30, dtype=torch.uint8).cuda()\nwhile True: y = x.clone()",
    "small kernels one by one": "import torch; x = torch.zeros(1024).cuda()\nwhile True: x += 1",
    "leaks 256 MiB a second": "import torch, time; k = []\n"
    "while True: k.append(torch.zeros(256 << 20, dtype=torch.uint8).cuda()); time.sleep(1)",
    "caching allocator": "import torch, time, random\n"
    "while True: x = torch.zeros(random.randint(1, 8 << 30), dtype=torch.uint8).cuda(); time.sleep(.2)",
}
QUERY = ["nvidia-smi", "dmon", "-s", "pucm", "--gpm-metrics", "2,5,10", "-d", "1"]


def measure(seconds: int) -> list[dict[str, float]]:
    """One row a second, by the names of dmon's columns."""
    printed = subprocess.run([*QUERY, "-c", str(seconds)], capture_output=True, text=True, check=True).stdout
    lines = [line.split() for line in printed.splitlines()]
    names = next(line[1:] for line in lines if line and line[0] == "#")
    rows = []
    for line in lines:
        if line and line[0] != "#":
            cells = zip(names, line, strict=False)
            rows.append({name.lower(): float(text) for name, text in cells if text not in ("-",)})
    return rows


def record(name: str, program: str, seconds: int) -> dict[str, object]:
    process = subprocess.Popen([sys.executable, "-c", program]) if program else None
    try:
        time.sleep(12 if process else 2)
        rows = measure(seconds)
    finally:
        if process is not None:
            process.kill()
            process.wait()
    time.sleep(5)
    found = sorted({column for row in rows for column in row})
    medians = {column: median(row[column] for row in rows if column in row) for column in found}
    print(f"{name}: {medians}", flush=True)
    return {"tenant": name, "median": medians, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=20)
    given = parser.parse_args()
    records = [record(name, program, given.seconds) for name, program in TENANTS.items()]
    (Path(os.environ.get("OUT", ".")) / "activity.json").write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
