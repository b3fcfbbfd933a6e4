"""From nothing to the first running pod, as a newcomer does it: what is downloaded, and how long each part takes.

Builds the wheel, installs it into an empty environment with an empty cache, starts `windlass up` from there once and
then five times again, and creates a pod through the API as soon as the address is printed. Prints what stands in the
README: the first start, and the quickest and slowest of the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
AGAIN = 5
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "first", "namespace": "default"},
    "spec": {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    },
}
ASK = """
import json, sys, time
from pathlib import Path
from windlass.demo.api import ApiClient
api = ApiClient(Path(sys.argv[1]))
api.request("POST", "/api/v1/namespaces/default/pods", json.loads(sys.argv[2]))
while api.get("/api/v1/namespaces/default/pods/first")["status"].get("phase") != "Running":
    time.sleep(0.02)
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
        subprocess.run(build, check=True, capture_output=True)
        (wheel,) = folder.glob("*.whl")
        package = f"{wheel}[up]"
        venv, packages = folder / "venv", folder / "packages"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        uv = str(Path(sys.executable).with_name("uv"))
        begun = time.monotonic()
        install = [uv, "pip", "install", "--quiet", "--no-cache", "--python", venv / "bin" / "python", package]
        subprocess.run(install, check=True)
        installed = time.monotonic() - begun
        printed, running = start(venv, folder)
        again = [start(venv, folder) for _ in range(AGAIN)]
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-cache-dir",
            "--dest",
            packages,
            package,
        ]
        subprocess.run(pip, check=True)
        size = sum(path.stat().st_size for path in packages.iterdir()) / 1e6
    print(f"downloaded           {size:6.0f} MB")
    print(f"installed            {installed:6.1f} s")
    print(f"address printed      {printed:6.1f} s, again {span([each for each, _ in again])}")
    print(f"first pod Running    {running:6.1f} s, again {span([each for _, each in again])}")
    print(f"all, from nothing    {installed + running:6.1f} s")
    return 0


def span(seconds: list[float]) -> str:
    return f"{min(seconds):.2f} to {max(seconds):.2f} s"


def environment() -> dict[str, str]:
    """A newcomer's: Python keeps what it has compiled, as it does unless it is told not to."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start(venv: Path, folder: Path) -> tuple[float, float]:
    """Seconds until the address is printed, and until a pod runs."""
    kubeconfig, log = folder / "kubeconfig", folder / "log"
    begun = time.monotonic()
    command = [
        venv / "bin" / "windlass",
        "up",
        "--port=0",
        "--page-port=0",
        f"--write-kubeconfig={kubeconfig}",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment())
    try:
        while "nodes  " not in log.read_text():
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.02)
        printed = time.monotonic() - begun
        ask = [venv / "bin" / "python", "-c", ASK, kubeconfig, json.dumps(POD)]
        subprocess.run(ask, check=True, env=environment())
        return printed, time.monotonic() - begun
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
