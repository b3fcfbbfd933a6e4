"""For the work itself: hear that it is asked to leave, write a checkpoint, answer. One file, standard library only.

    with checkpoint.leaving() as leave:
        for step in range(start, steps):
            train(step)
            if leave.should_stop(step):
                save(step + 1)
                if not leave.answer_and_wait(where="s3://bucket/run-7"):
                    break                                     # SIGTERM has come: this run is over

Import it from the package, or copy this file into an image: it imports nothing of Windlass. Windlass writes the ask on
the pod (`windlass.dev/ask`); a downward-API volume shows it as a file, and the answer goes back as an annotation of the
same pod. SIGTERM counts as an ask without an answer. As a program: `python checkpoint.py asked|answer|relay`.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ASK_ANNOTATION, ANSWER_ANNOTATION = "windlass.dev/ask", "windlass.dev/ask-answer"
ASK_FILE_VARIABLE, ANSWER_FILE_VARIABLE = "WINDLASS_ASK_FILE", "WINDLASS_ANSWER_FILE"
DEFAULT_ASK_FILE = "/etc/podinfo/annotations"
"""Where the manifests of the guide mount the pod's annotations."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
READ_SECONDS = 1.0
"""`should_stop` reads the file no more often, however short the steps are."""
POLL_SECONDS = 0.2
TIMEOUT_SECONDS = 10.0
LAG_SECONDS = 120.0
"""A downward-API file may be so late: a rank that has not seen the ask by then takes it for withdrawn."""


class AnswerError(Exception):
    """The answer could not be delivered: the work goes at the deadline, as if it had not answered."""


class Ask(NamedTuple):
    id: str
    until: str
    """The deadline (RFC 3339, UTC)."""
    asked: str = ""
    cause: str = ""
    for_whom: str = ""

    @property
    def seconds_left(self) -> float:
        return datetime.fromisoformat(self.until.replace("Z", "+00:00")).timestamp() - time.time()


def asked(path: str = "") -> Ask | None:
    """The ask that is open now; None where there is none. The file is the downward API's, or the ask alone as JSON."""
    try:
        text = Path(path or os.environ.get(ASK_FILE_VARIABLE, "") or DEFAULT_ASK_FILE).read_text(encoding="utf-8")
    except OSError:
        return None
    found = _decode(text if text.startswith("{") else _annotation(text))
    if not isinstance(found, dict) or not found.get("id") or not found.get("until"):
        return None
    names = {"id": "id", "until": "until", "asked": "asked", "cause": "cause", "for": "for_whom"}
    return Ask(**{field: str(found[name]) for name, field in names.items() if name in found})


def answer(ask: Ask, checkpoint: float | None = None, where: str = "") -> None:
    """Says that a checkpoint is complete, since `checkpoint` (seconds since 1970; now if not given).

    One answer speaks for the whole gang: it is given once every rank has written its part. It goes into the file that
    `WINDLASS_ANSWER_FILE` names, for a sidecar (`relay`); else on the pod, by the pod's own service account.
    """
    now = time.time()
    stamps = {"checkpoint": _timestamp(now if checkpoint is None else checkpoint), "answered": _timestamp(now)}
    text = json.dumps({"id": ask.id, **stamps, **({"where": where} if where else {})})
    file = os.environ.get(ANSWER_FILE_VARIABLE, "")
    if file:
        _replace(Path(file), text)
    else:
        annotate_own_pod(text)


class Leaving:
    """What a loop asks between two steps; `leaving` makes it."""

    def __init__(self, path: str = "", agree: Callable[[bool], bool] | None = None) -> None:
        """`agree`: makes all ranks stop at the same step: from what this rank has heard to whether any rank has."""
        self._path, self._agree = path, agree
        self._terminated = threading.Event()
        self._read_at = 0.0
        self.ask: Ask | None = None
        self._answered = ""

    @property
    def is_terminated(self) -> bool:
        """SIGTERM has come."""
        return self._terminated.is_set()

    def should_stop(self, step: int = 0) -> bool:
        """Whether to write a checkpoint now: asked, or told to end. Costs nothing between two reads of the file."""
        now = time.monotonic()
        if now - self._read_at >= READ_SECONDS:
            self.ask, self._read_at = asked(self._path), now
        heard = self.is_terminated or (self.ask is not None and self.ask.id != self._answered)
        return self._agree(heard) if self._agree is not None else heard

    def answer(self, checkpoint: float | None = None, where: str = "") -> None:
        """As the function `answer`; nothing where nobody has asked (SIGTERM, or another rank was asked)."""
        self.ask = asked(self._path) or self.ask
        if self.ask is not None and not self.is_terminated:
            answer(self.ask, checkpoint, where)
            self._answered = self.ask.id

    def wait(self) -> bool:
        """Until SIGTERM comes (False), or the ask is withdrawn (True: go on). A process that ends by itself with code
        0 counts as finished, so that it would not be started again."""
        gives_up_at = time.monotonic() + LAG_SECONDS
        while not self._terminated.wait(POLL_SECONDS):
            current = asked(self._path)
            if self.ask is None:  # another rank has heard it, and this pod's file is behind
                self.ask = current
                if current is None and time.monotonic() > gives_up_at:
                    return True
            elif current is None or current.id != self.ask.id:
                self.ask = current
                return True
        return False

    def answer_and_wait(self, checkpoint: float | None = None, where: str = "") -> bool:
        """Answers and waits; True: the ask was withdrawn, go on. An answer that can't be delivered is printed: what
        counts is the checkpoint."""
        try:
            self.answer(checkpoint, where)
        except AnswerError as error:
            print(f"windlass.checkpoint: {error}", file=sys.stderr, flush=True)
        return False if self.is_terminated else self.wait()

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        self._terminated.set()


@contextmanager
def leaving(path: str = "", agree: Callable[[bool], bool] | None = None) -> Iterator[Leaving]:
    """With SIGTERM as an ask; the handler that was there before is put back. To be entered in the main thread."""
    leave = Leaving(path, agree)
    before = signal.signal(signal.SIGTERM, leave._on_sigterm)
    try:
        yield leave
    finally:
        signal.signal(signal.SIGTERM, before)


def annotate_own_pod(text: str) -> None:
    """Writes the answer on the pod in which this runs; its service account must be allowed to patch pods."""
    host, name = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("POD_NAME") or os.environ.get("HOSTNAME")
    try:
        token = (SERVICE_ACCOUNT / "token").read_text().strip()
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except OSError as error:
        raise AnswerError(f"no service account ({error}); set {ANSWER_FILE_VARIABLE} and run the sidecar") from None
    host = f"[{host}]" if ":" in host else host
    address = f"https://{host}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
    request = urllib.request.Request(
        f"{address}/api/v1/namespaces/{namespace}/pods/{name}",
        json.dumps({"metadata": {"annotations": {ANSWER_ANNOTATION: text}}}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/merge-patch+json"},
        method="PATCH",
    )
    trust = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    try:
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS, context=trust).close()
    except OSError as error:
        raise AnswerError(f"the answer can't be written on pod {namespace}/{name}: {error}") from None


def relay(file: Path, deliver: Callable[[str], None] = annotate_own_pod, rounds: int | None = None) -> None:
    """The sidecar: delivers every new answer that appears in the file, again until it is accepted."""
    delivered = ""
    while rounds is None or rounds > 0:
        rounds = None if rounds is None else rounds - 1
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if text and text != delivered:
            try:
                deliver(text)
                delivered = text
            except AnswerError as error:
                print(f"windlass.checkpoint: {error}; trying again", file=sys.stderr, flush=True)
        time.sleep(READ_SECONDS)


def main(arguments: list[str]) -> int:
    """`asked` prints the ask (code 1: none); `answer [WHERE]` answers it; `relay` is the sidecar."""
    command, *rest = arguments or [""]
    found = asked()
    if command == "relay":
        relay(Path(os.environ[ANSWER_FILE_VARIABLE]))
    elif command == "asked" or (command == "answer" and found is None):
        print(json.dumps(found._asdict()) if found is not None else "nothing is asked")
        return 0 if found is not None else 1
    elif command == "answer" and found is not None:
        try:
            answer(found, where=rest[0] if rest else "")
        except AnswerError as error:
            print(f"windlass.checkpoint: {error}", file=sys.stderr)
            return 3
    else:
        print(main.__doc__, file=sys.stderr)
        return 2
    return 0


def _annotation(text: str) -> str:
    """The ask in a downward-API file: one `name="value"` a line, the value quoted."""
    prefix = f"{ASK_ANNOTATION}="
    line = next((line for line in text.splitlines() if line.startswith(prefix)), "")
    quoted = _decode(line[len(prefix) :])
    return quoted if isinstance(quoted, str) else ""


def _decode(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _timestamp(seconds: float) -> str:
    utc = timezone.utc  # noqa: UP017 (images may have an older Python)
    return datetime.fromtimestamp(int(seconds), utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _replace(file: Path, text: str) -> None:
    """Never half written."""
    part = file.with_name(f"{file.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
