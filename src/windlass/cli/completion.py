"""`windlass completion SHELL`: prints the script that makes the shell complete commands, options and policies."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from windlass.cli.main import COMPLETION_VARIABLE, cli


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your shell.

    \b
    For this session:
      eval "$(windlass completion bash)"
      eval "$(windlass completion zsh)"
      windlass completion fish | source
    For every session, put the same line into ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish.
    """
    script_class = get_completion_class(shell)
    assert script_class is not None, shell
    click.echo(script_class(cli, {}, "windlass", COMPLETION_VARIABLE).source())
