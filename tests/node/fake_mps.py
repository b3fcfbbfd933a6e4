"""A program that stands in for NVIDIA's control program of MPS: it answers alike, and writes down what it was told."""

from __future__ import annotations

from pathlib import Path

import pytest

FAKE = """\
#!/bin/sh
# Answers as nvidia-cuda-mps-control does, and writes down what it was told.
pipe="$CUDA_MPS_PIPE_DIRECTORY"
if [ "$1" = "-d" ]; then
  [ -e "{folder}/broken" ] && {{ echo "no daemon today"; exit 1; }}
  touch "$pipe/control"; [ -e "{folder}/cgroup" ] && touch /dev/shm/of-the-daemon
  echo "start $CUDA_VISIBLE_DEVICES" >> "{folder}/told"; exit 0
fi
[ -e "$pipe/control" ] || {{ echo "Cannot find MPS control daemon process"; exit 1; }}
while read -r line; do
  echo "$line" >> "{folder}/told"
  case "$line" in
    quit) rm "$pipe/control" ;;
    get_default_active_thread_percentage) echo 25.0 ;;
    get_server_list) [ -e "{folder}/mute" ] && exit 1; [ -e "{folder}/clients" ] && echo 100 ;;
    "get_client_list 100") cat "{folder}/clients" ;;
  esac
done
exit 0
"""


class FakeMps:
    """On the path of this process and those that it starts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        program = folder / "bin/nvidia-cuda-mps-control"
        program.parent.mkdir()
        program.write_text(FAKE.format(folder=folder))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")

    @property
    def told(self) -> list[str]:
        """What changes something; questions are left out."""
        file = self.folder / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line for line in lines if not line.startswith("get_")]

    def set_clients(self, *pids: int) -> None:
        file = self.folder / "clients"
        file.write_text("\n".join(map(str, pids)) + "\n") if pids else file.unlink()
