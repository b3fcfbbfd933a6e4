"""One process of the agent: `python -m windlass.node.child plugin|beside OPTIONS`, started by the supervisor.

The options are `AgentOptions` as JSON, read once by `windlass node run`, which has refused what is wrong with them.
"""

from __future__ import annotations

import json
import sys

from windlass.node.leave_out import skip_unused_imports


def main(name: str, options: str) -> int:
    choices = json.loads(options)
    skip_unused_imports(
        tls=name != "plugin" and bool(not choices["without_api"] or choices["web_config_file"])
    )
    from windlass.node.agent import decode_options, run_plugin, run_sidecar

    run = {"plugin": run_plugin, "beside": run_sidecar}[name]
    return run(decode_options(options))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
