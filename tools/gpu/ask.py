"""A training loop that is asked to leave, on a GPU: asked, checkpoint, answer, stopped, started again, nothing lost.

    python tools/gpu/ask.py [--engine numpy] [--steps 2000] [--width 4096]

Run it on a machine with PyTorch and a GPU; no cluster and no network. The loop is `windlass.checkpoint` with files: the
driver writes what a downward-API volume would show, and reads the answer as the sidecar would. One run goes through an
ask that is withdrawn, an ask that ends in SIGTERM, and a SIGTERM that nobody announced; another goes undisturbed. The
losses of both must be the same in every bit, with no step lost or repeated. Prints the seconds of each hop as JSON, and
writes ask.json to $OUT or here; code 1 if something is wrong. `--engine numpy` needs neither PyTorch nor a GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

MODULE = Path(__file__).resolve().parents[2] / "src" / "windlass" / "checkpoint.py"
PATIENCE_SECONDS = 240.0
BATCH = 512


# The work: a process of its own


class TorchEngine:
    def __init__(self, width: int) -> None:
        import torch

        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(7)
        self._torch, self._width = torch, width
        layers = [part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.GELU())]
        self._model = torch.nn.Sequential(*layers, torch.nn.Linear(width, width)).cuda()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-4)

    def step(self, number: int) -> float:
        torch = self._torch
        generator = torch.Generator("cuda").manual_seed(number)
        data = torch.randn(BATCH, self._width, device="cuda", generator=generator)
        loss = torch.nn.functional.mse_loss(self._model(data), data.roll(1, dims=1))
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def save(self, file: Path, step: int) -> None:
        state = {"model": self._model.state_dict(), "optimizer": self._optimizer.state_dict(), "step": step}
        self._torch.save(state, file)

    def load(self, file: Path) -> int:
        state = self._torch.load(file, map_location="cpu", weights_only=True)
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


class NumpyEngine:
    """The same on a CPU, for a machine without a GPU: a line that is fitted by descent with momentum."""

    def __init__(self, width: int) -> None:
        import numpy

        self._numpy = numpy
        self._weights, self._momentum = numpy.zeros(width), numpy.zeros(width)

    def step(self, number: int) -> float:
        data = self._numpy.random.default_rng(number).normal(size=(16, len(self._weights)))
        error = data @ (self._weights - 1.0)
        self._momentum = 0.9 * self._momentum + data.T @ error / len(data)
        self._weights = self._weights - 1e-3 * self._momentum
        time.sleep(0.002)
        return float((error**2).mean())

    def save(self, file: Path, step: int) -> None:
        with file.open("wb") as stream:
            self._numpy.savez(stream, weights=self._weights, momentum=self._momentum, step=step)

    def load(self, file: Path) -> int:
        with self._numpy.load(file) as state:
            self._weights, self._momentum = state["weights"], state["momentum"]
            return int(state["step"])


def work(folder: Path, engine: str, steps: int, width: int) -> None:
    checkpoint, stamp = _checkpoint_module(), _stamper(folder)
    stamp("process", 0)
    trainer: Any = TorchEngine(width) if engine == "torch" else NumpyEngine(width)
    file = folder / "checkpoint"
    stamp("engine", 0)
    start = trainer.load(file) if file.exists() else 0
    stamp("loaded", start)
    with checkpoint.leaving() as leave, (folder / "losses").open("a") as losses:
        for number in range(start, steps):
            loss = trainer.step(number)
            print(number, loss.hex(), file=losses, flush=True)
            if number == start:
                stamp("first step", number)
            if leave.should_stop(number):
                stamp("heard", number)
                part = folder / "checkpoint.part"
                trainer.save(part, number + 1)
                part.replace(file)
                stamp("saved", number)
                if not leave.answer_and_wait(where="pvc://checkpoints/run"):
                    stamp("terminated", number)
                    sys.exit(143)
                stamp("withdrawn", number)
    stamp("done", steps)


def _checkpoint_module() -> Any:
    """As a copied file: nothing of Windlass has to be installed here."""
    spec = importlib.util.spec_from_file_location("checkpoint", MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["checkpoint"] = module
    spec.loader.exec_module(module)
    return module


def _stamper(folder: Path) -> Callable[[str, int], None]:
    def stamp(event: str, step: int) -> None:
        with (folder / "stamps").open("a") as stamps:
            print(json.dumps({"event": event, "step": step, "at": time.time()}), file=stamps)

    return stamp


# The driver: what Windlass and the kubelet would do


class Run:
    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        folder.mkdir()
        self.folder, self._given = folder, given
        self.ask_file, self.answer_file = folder / "annotations", folder / "answer"
        self._asks = 0

    @contextmanager
    def process(self) -> Iterator[subprocess.Popen[bytes]]:
        arguments = ["--work", str(self.folder), "--engine", self._given.engine]
        arguments += ["--steps", str(self._given.steps), "--width", str(self._given.width)]
        files = {"WINDLASS_ASK_FILE": str(self.ask_file), "WINDLASS_ANSWER_FILE": str(self.answer_file)}
        process = subprocess.Popen([sys.executable, __file__, *arguments], env={**os.environ, **files})
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()

    def losses(self) -> list[tuple[int, str]]:
        file = self.folder / "losses"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(int(line[0]), line[1]) for line in lines if len(line) == 2]

    def stamps(self) -> list[dict[str, Any]]:
        file = self.folder / "stamps"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, process: subprocess.Popen[bytes], seen: Callable[[], Any], what: str) -> float:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not seen():
            if process.poll() not in (None, 0, 143) or time.monotonic() > deadline:
                raise SystemExit(f"failed: {what} (process: {process.poll()})")
            time.sleep(0.005)
        return time.time()

    def until_step(self, process: subprocess.Popen[bytes], share: float) -> None:
        step = int(self._given.steps * share)
        self.until(process, lambda: len(self.losses()) > step, f"step {step} is reached")

    def ask(self) -> tuple[str, float]:
        """As a downward-API volume shows it; returns the id and the time."""
        self._asks += 1
        until = datetime.fromtimestamp(time.time() + 60, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017
        ask = {"id": f"ask-{self._asks}", "asked": until, "until": until, "cause": "Priority"}
        self._write(f"windlass.dev/ask={json.dumps(json.dumps(ask))}\n")
        return ask["id"], time.time()

    def withdraw(self) -> None:
        self._write("")

    def _write(self, text: str) -> None:
        part = self.folder / "annotations.part"
        part.write_text(f'kubernetes.io/config.source="api"\n{text}')
        part.replace(self.ask_file)

    def is_answered(self, identity: str) -> bool:
        return self.answer_file.exists() and json.loads(self.answer_file.read_text())["id"] == identity


def disturbed(run: Run) -> dict[str, float]:
    """Withdrawn once, stopped after an answer, stopped without a word; then to its end. Returns the hops."""
    with run.process() as process:
        run.until_step(process, 0.15)
        identity, _ = run.ask()
        run.until(process, lambda: run.is_answered(identity), "the first ask is answered")
        run.withdraw()
        run.until_step(process, 0.35)
        identity, asked_at = run.ask()
        answered_at = run.until(process, lambda: run.is_answered(identity), "the second ask is answered")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)
        gone_at = time.time()
    run.withdraw()
    hops = _hops(run, asked_at, answered_at, gone_at)
    with run.process() as process:
        began = len(run.stamps())
        run.until(process, lambda: _stamped(run, "first step", began), "the first step after the restart")
        hops |= _start_hops(run, gone_at, began)
        hops["ask to first step"] = gone_at - asked_at + hops["gone to first step"]
        run.until_step(process, 0.7)
        before = time.time()
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)
        hops["unannounced SIGTERM to gone"] = time.time() - before
    with run.process() as process:
        run.until(process, lambda: process.poll() is not None, "the end")
    return hops


def _stamped(run: Run, event: str, since: int = 0) -> float:
    """The last time of the event after so many stamps; 0 where it has not come."""
    return next((stamp["at"] for stamp in reversed(run.stamps()[since:]) if stamp["event"] == event), 0.0)


def _hops(run: Run, asked_at: float, answered_at: float, gone_at: float) -> dict[str, float]:
    heard, saved = _stamped(run, "heard"), _stamped(run, "saved")
    return {
        "ask to heard": heard - asked_at,
        "heard to saved": saved - heard,
        "saved to answer": answered_at - saved,
        "SIGTERM to gone": gone_at - answered_at,
    }


def _start_hops(run: Run, gone_at: float, began: int) -> dict[str, float]:
    order = ("process", "engine", "loaded", "first step")
    at = [gone_at, *(_stamped(run, event, began) for event in order)]
    hops = {f"to {event}": after - before for event, before, after in zip(order, at[:-1], at[1:], strict=True)}
    return {**hops, "gone to first step": at[-1] - gone_at}


def compare(undisturbed: Run, run: Run, steps: int) -> list[str]:
    expected, found = undisturbed.losses(), run.losses()
    problems = []
    if [step for step, _ in expected] != list(range(steps)):
        problems.append("the undisturbed run has not all steps")
    if [step for step, _ in found] != list(range(steps)):
        problems.append("a step was lost or repeated")
    different = [step for (step, loss), (_, other) in zip(expected, found, strict=False) if loss != other]
    if different:
        problems.append(f"{len(different)} losses differ, the first at step {different[0]}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("torch", "numpy"), default="torch")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--work", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(Path(given.work), given.engine, given.steps, given.width)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed, run = Run(Path(folder) / "undisturbed", given), Run(Path(folder) / "disturbed", given)
        with undisturbed.process() as process:
            undisturbed.until(process, lambda: process.poll() is not None, "the undisturbed run ends")
        hops = disturbed(run)
        problems = compare(undisturbed, run, given.steps)
        stopped_at = [stamp["step"] for stamp in run.stamps() if stamp["event"] in ("withdrawn", "terminated")]
        size = (run.folder / "checkpoint").stat().st_size
    document = {
        "engine": given.engine,
        "steps": given.steps,
        "checkpointBytes": size,
        "interruptedAfterStep": stopped_at,
        "seconds": {name: round(seconds, 3) for name, seconds in hops.items()},
        "lossesAreTheSame": not problems,
        "problems": problems,
    }
    text = json.dumps(document, indent=1)
    print(text)
    (Path(os.environ.get("OUT", ".")) / "ask.json").write_text(text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
