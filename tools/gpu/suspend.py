"""Suspending CUDA work in place on a real GPU: how long, what is free meanwhile, and whether the work is unharmed.

    python tools/gpu/container.py --prepare           # once, where there is pip: fills .device/
    PYTHONPATH=.device/python python3 tools/gpu/suspend.py [--gib 1,20,100]

Run it as root on a machine with an NVIDIA GPU (driver 570 or newer) and PyTorch. A tenant fills GPU memory, and
multiplies matrices between two sums over all of it; `windlass node suspend` takes it off the GPU, a second tenant takes
nearly all of the memory and computes, `windlass node resume` puts the first one back. Two processes that share memory
by CUDA's IPC, and one whose kernel does not end in time, are tried too. Prints JSON, writes suspend.json to $OUT or
here, and exits with 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WINDLASS = [sys.executable, "-c", "from windlass.cli.main import main; main()", "node"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
TENANT = """
import sys, time, torch
gib = float(sys.argv[1])
torch.manual_seed(7)
words = torch.randint(0, 1 << 30, (int(gib * (1 << 30)) // 8,), dtype=torch.int64, device='cuda')
left = torch.randn(4096, 4096, device='cuda')
def state():
    return int(words.sum()), float((left @ left).double().sum())
def say(*text):
    print(*text, flush=True)
say('ready', *state())
for line in sys.stdin:
    began = time.monotonic()
    answer = state()
    say('state', *answer, round(time.monotonic() - began, 3))
"""
BUSY = """
import sys, torch
torch.zeros(1).cuda()
torch.cuda._sleep(15_000_000_000)
print('ready', flush=True)
for line in sys.stdin:
    torch.cuda.synchronize()
    print('state', float(torch.ones(1000, device='cuda').sum()), flush=True)
"""
SHARING = """
import sys, torch, torch.multiprocessing as mp
def child(tensor, ready):
    tensor += 1
    ready.set()
    import time
    time.sleep(999)
if __name__ == '__main__':
    mp.set_start_method('spawn')
    tensor, ready = torch.zeros(1 << 20, device='cuda'), mp.Event()
    other = mp.Process(target=child, args=(tensor, ready), daemon=True)
    other.start()
    ready.wait()
    print('ready', other.pid, flush=True)
    for line in sys.stdin:
        print('state', float(tensor.sum()), flush=True)
"""


class Tenant:
    def __init__(self, program: str, *arguments: str) -> None:
        path = Path(os.environ.get("TMPDIR", "/tmp")) / f"tenant-{abs(hash(program)) % 10_000}.py"
        path.write_text(program)
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, str(path), *arguments],
            stdin=pipe,
            stdout=pipe,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self.first = self.hear()

    def ask(self) -> list[str]:
        assert self.process.stdin is not None
        self.process.stdin.write("state\n")
        self.process.stdin.flush()
        return self.hear()

    def hear(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()[1:]

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def used_mib() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[0])


def windlass(*arguments: str) -> tuple[int, dict[str, Any], str, float]:
    """Exit code, document, words, seconds of the whole command."""
    began = time.monotonic()
    done = subprocess.run(
        [*WINDLASS, *arguments, "-o", "json"], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    document = json.loads(done.stdout) if done.stdout.strip() else {}
    return done.returncode, document, done.stderr.strip(), round(time.monotonic() - began, 2)


def resident_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


def in_place(gib: float) -> dict[str, Any]:
    idle = used_mib()
    tenant = Tenant(TENANT, str(gib))
    pid = str(tenant.process.pid)
    try:
        before, holding = used_mib(), resident_mib(tenant.process.pid)
        code, gone, words, command_s = windlass("suspend", "--pid", pid)
        if code:
            return {"gib": gib, "failed": words}
        free, held = used_mib(), resident_mib(tenant.process.pid)
        second = Tenant(TENANT, "110")
        other = second.ask()
        second.end()
        code, back, words, resume_command_s = windlass("resume", "--pid", pid)
        if code:
            return {"gib": gib, "failed": words}
        answer = tenant.ask()
    finally:
        tenant.end()
    return {
        "gib": gib,
        "GPU MiB before any, with the tenant, suspended": [idle, before, free],
        "host MiB with the tenant, suspended": [holding, held],
        "suspend, s": gone["items"][0]["seconds"],
        "suspend, whole command, s": command_s,
        "resume, s": back["items"][0]["seconds"],
        "resume, whole command, s": resume_command_s,
        "second tenant had 110 GiB and was right": other[:2] == second.first,
        "unharmed": answer[:2] == tenant.first,
    }


def hard_cases() -> dict[str, dict[str, Any]]:
    """Memory that another process has open, and a kernel that does not end: suspended or refused, the work goes on."""
    found = {}
    for name, program, answer in (("shared memory", SHARING, 1 << 20), ("busy for seconds", BUSY, 1000)):
        tenant = Tenant(program)
        try:
            pids = [str(tenant.process.pid), *tenant.first]
            chosen = [word for pid in pids for word in ("--pid", pid)]
            code, _, words, seconds = windlass("suspend", *chosen, "--timeout", "2")
            free = used_mib()
            if code == 0:
                windlass("resume", *chosen)
            goes_on = tenant.ask() == [str(float(answer))]
            found[name] = {"exit code": code, "words": words, "s": seconds, "GPU MiB": free, "goes on": goes_on}
        finally:
            tenant.end()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", default="1,20,100", help="what the tenant has on the GPU")
    options = parser.parse_args()
    found: dict[str, Any] = {"sizes": []}
    for gib in options.gib.split(","):
        found["sizes"].append(in_place(float(gib)))
        print(json.dumps(found["sizes"][-1], indent=2), flush=True)
    found["hard cases"] = hard_cases()
    print(json.dumps(found["hard cases"], indent=2), flush=True)
    Path(os.environ.get("OUT", "."), "suspend.json").write_text(json.dumps(found, indent=2))
    right = all(row.get("unharmed") and row["second tenant had 110 GiB and was right"] for row in found["sizes"])
    return 0 if right and all(case["goes on"] for case in found["hard cases"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
