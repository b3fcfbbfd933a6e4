"""A small shell for simulated containers: what a command prints, how long it takes, how it exits.

`simulated_containers` uses it for a container's own command (so that `sleep 30` and `nvidia-smi` in a manifest
work) and for `kubectl exec`. It runs nothing on this machine. Unknown commands exit with 127 and a message.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from windlass.embedded.api.numbers import parse_decimal

KNOWN_COMMANDS = (
    *("cat", "date", "echo", "env", "exit", "false", "hostname", "nvidia-smi", "printenv", "pwd"),
    *("sleep", "true", "uname", "whoami"),
)
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/sh")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_SEPARATORS = (";", "&&", "||", "\n")
MAX_SCRIPT_LENGTH = 16 << 10
"""A longer script is not understood: splitting it takes time in proportion to the square of its length."""
MAX_OUTPUT_LENGTH = 1 << 20
"""Of a whole script, which ends there, since a few bytes of script can print any amount."""


@dataclass(frozen=True)
class ShellEnvironment:
    """What a command can see."""

    hostname: str
    environment: Mapping[str, str]
    nvidia_smi: Callable[[Sequence[str]], tuple[str, int]]
    """Arguments → (output, exit code)."""
    date: str = ""


@dataclass
class CommandResult:
    """The result; each piece of output has the second at which it appears."""

    output: list[tuple[float, str]] = field(default_factory=list)
    errors: str = ""
    exit_code: int = 0
    seconds: float | None = 0.0
    """None: it never ends."""
    understood: bool = True
    exited: bool = False
    """`exit` was called."""
    output_length: int = 0
    expanded_length: int = 0
    """Of the variables' values that were put in so far."""
    echoes_stdin: bool = False
    """Whether standard input is copied to standard output."""

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self.output)


def run_command(arguments: Sequence[str], environment: ShellEnvironment) -> CommandResult:
    result = CommandResult()
    if not arguments:
        return CommandResult(understood=False)
    if arguments[0] in _SHELLS and len(arguments) > 2 and arguments[1] in ("-c", "-ec", "-lc", "-exc"):
        _run_script(arguments[2], environment, result)
    elif arguments[0] in _SHELLS:
        _not_supported(arguments[0], result, 126, "a simulated pod has no interactive shell")
    else:
        _run(list(arguments), environment, result)
    return result


def _run_script(text: str, environment: ShellEnvironment, result: CommandResult) -> None:
    command: list[str] = []
    separator = ";"
    for token in [*_tokens(text, result), ";"]:
        if token not in _SEPARATORS:
            command.append(token)
            continue
        should_run = separator in (";", "\n") or (separator == "&&") == (result.exit_code == 0)
        if command and should_run:
            _run([_expand(word, environment.environment, result) for word in command], environment, result)
        is_full = result.output_length >= MAX_OUTPUT_LENGTH
        if result.exited or not result.understood or result.seconds is None or is_full:
            return
        command, separator = [], token


def _tokens(text: str, result: CommandResult) -> list[str]:
    """Words and separators; quotes are kept until variables are expanded."""
    if len(text) > MAX_SCRIPT_LENGTH:
        _not_supported("sh", result, 126, f"the script has more than {MAX_SCRIPT_LENGTH} characters")
        return []
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=False, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    try:
        tokens = list(lexer)
    except ValueError:
        tokens = []
        _not_supported("sh", result, 2, "the script has an open quote")
    unsupported = {"|", "&", "<", ">", ">>", "(", ")", "()", "while", "for", "if", "do", "case", "until"}
    found_unsupported = next((token for token in tokens if token in unsupported), None)
    if found_unsupported is not None:
        _not_supported("sh", result, 126, f"'{found_unsupported}' in a script is not supported")
        return []
    return tokens


def _expand(word: str, environment: Mapping[str, str], result: CommandResult) -> str:
    if len(word) > 1 and word[0] == word[-1] == "'":
        return word[1:-1]
    word = word.replace("$?", str(result.exit_code))

    def replace(match: re.Match[str]) -> str:
        found = environment.get(match[1] or match[2], "")[: MAX_OUTPUT_LENGTH - result.expanded_length]
        result.expanded_length += len(found)
        return found

    expanded = _VARIABLE.sub(replace, word)
    is_quoted = len(expanded) > 1 and expanded[0] == expanded[-1] == '"'
    return expanded[1:-1] if is_quoted else expanded.replace('"', "")


def _run(arguments: list[str], environment: ShellEnvironment, result: CommandResult) -> None:
    name = arguments[0].rpartition("/")[2] if arguments[0].startswith("/") else arguments[0]
    rest, last_exit_code = arguments[1:], result.exit_code
    result.exit_code = 0
    match name:
        case "true" | ":":
            pass
        case "false":
            result.exit_code = 1
        case "exit":
            _exit(rest, last_exit_code, result)
        case "echo":
            ending = "" if rest[:1] == ["-n"] else "\n"
            _append_output(result, " ".join(rest[1:] if rest[:1] == ["-n"] else rest) + ending)
        case "hostname":
            _append_output(result, environment.hostname + "\n")
        case "env" | "printenv":
            _print_environment(rest, environment, result)
        case "cat":
            _cat(rest, environment, result)
        case "nvidia-smi":
            printed, result.exit_code = environment.nvidia_smi(rest)
            _append_output(result, printed)
        case "sleep":
            _sleep(rest, result)
        case "date":
            _append_output(result, environment.date + "\n")
        case "pwd":
            _append_output(result, "/\n")
        case "whoami":
            _append_output(result, "root\n")
        case "uname":
            _append_output(result, f"Linux {environment.hostname} x86_64\n" if rest else "Linux\n")
        case _:
            _not_supported(name, result, 127, "it runs no images")


def _exit(arguments: list[str], last_exit_code: int, result: CommandResult) -> None:
    """Without a number, with the exit code of the command before; a word that is no number is an error of usage."""
    result.exited, result.exit_code = True, last_exit_code
    number = parse_decimal(arguments[0]) if arguments else None
    if number is not None:
        result.exit_code = number & 255
    elif arguments:
        result.exit_code = 2
        result.errors += f"sh: exit: Illegal number: {arguments[0]}\n"


def _append_output(result: CommandResult, text: str) -> None:
    result.output.append((result.seconds or 0.0, text[: MAX_OUTPUT_LENGTH - result.output_length]))
    result.output_length = min(MAX_OUTPUT_LENGTH, result.output_length + len(text))


def _print_environment(names: list[str], environment: ShellEnvironment, result: CommandResult) -> None:
    if not names:
        _append_output(result, "".join(f"{key}={value}\n" for key, value in environment.environment.items()))
        return
    for name in names:
        if name in environment.environment:
            _append_output(result, environment.environment[name] + "\n")
        else:
            result.exit_code = 1


def _cat(files: list[str], environment: ShellEnvironment, result: CommandResult) -> None:
    if not files or files == ["-"]:
        result.echoes_stdin = True
    for file in (name for name in files if name != "-"):
        if file == "/etc/hostname":
            _append_output(result, environment.hostname + "\n")
        else:
            result.errors += f"cat: {file}: a simulated pod has no files but /etc/hostname\n"
            result.exit_code = 1


def _sleep(arguments: list[str], result: CommandResult) -> None:
    if arguments[:1] in (["infinity"], ["inf"]):
        result.seconds = None
        return
    total = 0.0
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    for argument in arguments:
        number, unit = (argument[:-1], argument[-1]) if argument[-1:] in units else (argument, "s")
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", number):
            result.errors += f"sleep: invalid time interval '{argument}'\n"
            result.exit_code = 1
            return
        total += float(number) * units[unit]
    result.seconds = (result.seconds or 0.0) + total


def _not_supported(name: str, result: CommandResult, code: int, reason: str) -> None:
    result.understood, result.exit_code = False, code
    result.errors += (
        f"{name}: this container is simulated by windlass up, and {reason}. "
        f"It knows: {', '.join(KNOWN_COMMANDS)}, and sh -c of these\n"
    )
