"""Entry point of one agent process: `python -m windlass.node.child plugin|sidecar OPTIONS`, started by the
supervisor.

OPTIONS is `AgentOptions` as JSON; `windlass node run` has validated it already.
"""

from __future__ import annotations

import json
import sys

from windlass.node.leave_out import skip_unused_imports


def main(name: str, options: str) -> int:
    raw_options = json.loads(options)
    skip_unused_imports(tls=name != "plugin" and bool(not raw_options["without_api"] or raw_options["web_config_file"]))
    from windlass.node.agent import decode_options, run_plugin, run_sidecar

    run = {"plugin": run_plugin, "sidecar": run_sidecar}[name]
    return run(decode_options(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
