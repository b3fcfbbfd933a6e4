"""A very small shell for containers that don't exist: what a command would print, how long it takes, how it ends.

Used twice by `runtime.simulated`: for a container's own command (so that `sleep 30` and `nvidia-smi` in a manifest do
what they say) and for `kubectl exec`. It runs nothing on this machine. What it doesn't know it says so, with 127.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

KNOWN_COMMANDS = (
    *("cat", "date", "echo", "env", "exit", "false", "hostname", "nvidia-smi", "printenv", "pwd"),
    *("sleep", "true", "uname", "whoami"),
)
_SHELLS = ("sh", "bash", "/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/sh")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_JOINERS = (";", "&&", "||", "\n")


@dataclass(frozen=True)
class ShellEnvironment:
    """Where a command runs."""

    hostname: str
    environment: Mapping[str, str]
    nvidia_smi: Callable[[Sequence[str]], tuple[str, int]]
    """Its arguments in, what it prints and its exit code out."""
    date: str = ""


@dataclass
class CommandResult:
    """What came of it: pieces of output, each with the second at which it appears."""

    output: list[tuple[float, str]] = field(default_factory=list)
    errors: str = ""
    exit_code: int = 0
    seconds: float | None = 0.0
    """None: it never ends."""
    understood: bool = True
    exited: bool = False
    """`exit` was called."""
    echoes_stdin: bool = False
    """Whatever comes in on standard input goes out again, until it ends."""

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self.output)


def run_command(arguments: Sequence[str], environment: ShellEnvironment) -> CommandResult:
    done = CommandResult()
    if not arguments:
        return CommandResult(understood=False)
    if arguments[0] in _SHELLS and len(arguments) > 2 and arguments[1] in ("-c", "-ec", "-lc", "-exc"):
        _script(arguments[2], environment, done)
    elif arguments[0] in _SHELLS:
        _unknown(arguments[0], done, 126, "a simulated pod has no interactive shell")
    else:
        _one(list(arguments), environment, done)
    return done


def _script(text: str, place: ShellEnvironment, done: CommandResult) -> None:
    words: list[str] = []
    joiner = ";"
    for token in [*_tokens(text, done), ";"]:
        if token not in _JOINERS:
            words.append(token)
            continue
        wanted = joiner in (";", "\n") or (joiner == "&&") == (done.exit_code == 0)
        if words and wanted:
            _one([_expand(word, place.environment, done) for word in words], place, done)
        if done.exited or not done.understood or done.seconds is None:
            return
        words, joiner = [], token


def _tokens(text: str, done: CommandResult) -> list[str]:
    """Words and joiners; quotes are kept until variables are put in."""
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=False, punctuation_chars=";&|()<>")
    lexer.whitespace_split = True
    try:
        found = list(lexer)
    except ValueError:
        found = []
        _unknown("sh", done, 2, "the script has an open quote")
    odd = {"|", "&", "<", ">", ">>", "(", ")", "()", "while", "for", "if", "do", "case", "until"}
    strange = next((token for token in found if token in odd), None)
    if strange is not None:
        _unknown("sh", done, 126, f"'{strange}' in a script is more than it understands")
        return []
    return found


def _expand(word: str, environment: Mapping[str, str], done: CommandResult) -> str:
    if len(word) > 1 and word[0] == word[-1] == "'":
        return word[1:-1]
    word = word.replace("$?", str(done.exit_code))
    put_in = _VARIABLE.sub(lambda match: environment.get(match[1] or match[2], ""), word)
    return put_in[1:-1] if len(put_in) > 1 and put_in[0] == put_in[-1] == '"' else put_in.replace('"', "")


def _one(words: list[str], place: ShellEnvironment, done: CommandResult) -> None:
    name, rest = words[0].rpartition("/")[2] if words[0].startswith("/") else words[0], words[1:]
    done.exit_code = 0
    match name:
        case "true" | ":":
            pass
        case "false":
            done.exit_code = 1
        case "exit":
            done.exited = True
            done.exit_code = int(rest[0]) & 255 if rest and rest[0].isdigit() else done.exit_code
        case "echo":
            ending = "" if rest[:1] == ["-n"] else "\n"
            _print(done, " ".join(rest[1:] if rest[:1] == ["-n"] else rest) + ending)
        case "hostname":
            _print(done, place.hostname + "\n")
        case "env" | "printenv":
            _environment(rest, place, done)
        case "cat":
            _cat(rest, place, done)
        case "nvidia-smi":
            printed, done.exit_code = place.nvidia_smi(rest)
            _print(done, printed)
        case "sleep":
            _sleep(rest, done)
        case "date":
            _print(done, place.date + "\n")
        case "pwd":
            _print(done, "/\n")
        case "whoami":
            _print(done, "root\n")
        case "uname":
            _print(done, f"Linux {place.hostname} x86_64\n" if rest else "Linux\n")
        case _:
            _unknown(name, done, 127, "it runs no images")


def _print(done: CommandResult, text: str) -> None:
    done.output.append((done.seconds or 0.0, text))


def _environment(names: list[str], place: ShellEnvironment, done: CommandResult) -> None:
    if not names:
        _print(done, "".join(f"{key}={value}\n" for key, value in place.environment.items()))
        return
    for name in names:
        if name in place.environment:
            _print(done, place.environment[name] + "\n")
        else:
            done.exit_code = 1


def _cat(files: list[str], place: ShellEnvironment, done: CommandResult) -> None:
    if not files or files == ["-"]:
        done.echoes_stdin = True
    for file in (each for each in files if each != "-"):
        if file == "/etc/hostname":
            _print(done, place.hostname + "\n")
        else:
            done.errors += f"cat: {file}: a simulated pod has no files but /etc/hostname\n"
            done.exit_code = 1


def _sleep(arguments: list[str], done: CommandResult) -> None:
    if arguments[:1] in (["infinity"], ["inf"]):
        done.seconds = None
        return
    total = 0.0
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    for word in arguments:
        number, unit = (word[:-1], word[-1]) if word[-1:] in units else (word, "s")
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", number):
            done.errors += f"sleep: invalid time interval '{word}'\n"
            done.exit_code = 1
            return
        total += float(number) * units[unit]
    done.seconds = (done.seconds or 0.0) + total


def _unknown(name: str, done: CommandResult, code: int, why: str) -> None:
    done.understood, done.exit_code = False, code
    done.errors += (
        f"{name}: this container is simulated by windlass up, and {why}. "
        f"It knows: {', '.join(KNOWN_COMMANDS)}, and sh -c of these\n"
    )
