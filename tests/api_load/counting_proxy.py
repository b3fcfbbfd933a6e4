"""Passes connections on to the API server and counts their bytes, as they are on the wire: compressed, encrypted.

One for each role, so that all are measured alike, whatever they count themselves.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import yaml


class CountingProxy:
    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._target = address.hostname, address.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.sent = self.received = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bytes(self) -> int:
        return self.sent + self.received

    def kubeconfig(self, original: Path, copy: Path) -> Path:
        """The same way in, through this proxy."""
        content = yaml.safe_load(original.read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        copy.write_text(yaml.safe_dump(content))
        return copy

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=(client, server, "sent"), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, "received"), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, counter: str) -> None:
        try:
            while chunk := source.recv(1 << 16):
                setattr(self, counter, getattr(self, counter) + len(chunk))
                target.sendall(chunk)
        except OSError:
            pass
        finally:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
