"""`windlass demo`: the guided tour on the embedded cluster, which it starts itself where none is running."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from windlass.cli.errors import EXIT_FINDINGS, check_names
from windlass.cli.extras import require_extra
from windlass.cli.output import print_note

EXAMPLES = """\b
Examples:
  windlass demo
  windlass demo --step                 wait for a key after each step
  windlass demo --only gangs,xid       some steps of it
  windlass demo --list

Exit codes: 0 every step passed, 1 one failed, 2 wrong usage, 3 no cluster.
"""


@click.command("demo", epilog=EXAMPLES)
@click.option("--step", is_flag=True, help="Wait for a key after each step.")
@click.option("--fast", is_flag=True, help="No pauses for reading. [default where the output is not a terminal]")
@click.option("--only", default="", metavar="STEPS", help="Some steps, by name, separated by commas.")
@click.option("--list", "list_", is_flag=True, help="Name the steps, and do nothing.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A running `windlass up`. [default: the one that is running, else one of its own]",
)
def demo(step: bool, fast: bool, only: str, list_: bool, kubeconfig: Path | None) -> int:
    """What a GPU layer is for, in eleven short steps on the embedded cluster, each with its outcome checked.

    Every kubectl command is printed as it runs, with the kubectl on the PATH; without one, the API's answers are shown.
    """
    from windlass.demo.api import ApiClient
    from windlass.demo.cluster import demo_cluster
    from windlass.demo.kubectl import find_kubectl
    from windlass.demo.presenter import CheckFailed, Presenter
    from windlass.demo.steps import DEMO_STEPS, run_steps

    if list_:
        for demo_step in DEMO_STEPS:
            click.echo(f"{demo_step.name:<12} {demo_step.title}")
        return 0
    names = [name.strip() for name in only.split(",") if name.strip()]
    known = [demo_step.name for demo_step in DEMO_STEPS]
    check_names("step", names, known)
    # A step that continues the previous one needs that one too.
    wanted = {
        *names,
        *(known[known.index(name) - 1] for name in names if DEMO_STEPS[known.index(name)].continues_previous),
    }
    steps = tuple(demo_step for demo_step in DEMO_STEPS if not names or demo_step.name in wanted)
    if kubeconfig is None:
        require_extra("up", "windlass demo")
    with demo_cluster(kubeconfig) as file:
        api = ApiClient(file)
        kubectl = find_kubectl(api, file)
        print_note(f"Commands are run with {kubectl.name}.")
        stage = Presenter(api, kubectl, file, step=step, fast=fast or not sys.stdout.isatty())
        try:
            run_steps(stage, steps)
        except CheckFailed as failed:
            click.secho(f"  ✗ {failed}", fg="red")
            return EXIT_FINDINGS
        finally:
            stage.close()
    click.echo(f"\nAll {len(steps)} steps passed. Next: `windlass up`, then kubectl.")
    return 0
