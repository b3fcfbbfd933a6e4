"""Finds what whole rooms write for people: every sentence of their modules, and of the page's TypeScript and HTML.

`tools.reference.messages` makes a section of docs/reference/messages.md of each entry of ROOMS. A room is named by its
files, so that a sentence written there later is found without a word here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tools.reference.message_placeholders import CLOSE, OPEN, PLACEHOLDER, Texts
from tools.reference.message_templates import Function, FunctionRun, Scope

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
ROOMS: dict[str, tuple[str, ...]] = {
    "Topology requests that are not met": ("placement/topology/*.py",),
    "Status of queues and Workloads": ("scheduler/queue_status.py", "apply/kueue.py"),
    "Work that is asked to leave": (
        "placement/asks.py",
        "placement/kept_room.py",
        "model/leaving.py",
        "model/notices.py",
        "diagnose/moves.py",
        "checkpoint.py",
    ),
    "What flavors cost": ("queueing/flavor_costs.py",),
    "When: the outlook of why": ("diagnose/engine_view.py",),
    "freeze": ("cli/freeze.py", "kube/freeze.py"),
    "handover, and install hand-over-crds": ("cli/handover.py", "cli/install_hand_over.py"),
    "plan mig": ("cli/plan_mig.py", "sharing/mig_plan.py", "node/mig_apply.py"),
    "plan defrag": ("cli/plan_defrag.py", "cli/defrag_document.py", "defrag/*.py"),
    "node advise": ("cli/node_advise.py", "sharing/advise.py"),
    "node validate": ("cli/node_validate.py", "node/validator/*.py", "node/container_runtime.py"),
    "up and sandbox": (
        "cli/up*.py",
        "embedded/*.py",
        "embedded/runtime/faults.py",
        "embedded/runtime/sandbox_routes.py",
        "embedded/runtime/process/nodes.py",
        "embedded/runtime/process/this_machine.py",
        "embedded/runtime/process/cgroups.py",
        "embedded/store/*.py",
    ),
    "Pods, nodes and logs of up": ("embedded/runtime/*.py", "embedded/runtime/process/*.py"),
    "Controllers of up": ("embedded/controllers/*.py",),
    "The operator, stack, change and repair": (
        "operator/decide/*.py",
        "operator/forecast.py",
        "cli/stack.py",
        "cli/change.py",
        "cli/plan_change.py",
        "cli/repair.py",
    ),
    "plan order": ("cli/plan_order.py", "queueing/order_breakdown.py"),
    "status and observe": (
        "cli/status.py",
        "telemetry/bottleneck.py",
        "cli/observe.py",
        "cli/observation_source.py",
    ),
    "The page": ("web/*.py", "../../web/src/*.ts", "../../web/index.html"),
}
"""Heading → its files, relative to src/windlass. A file that two of them match belongs to the first."""
WORD = re.compile(r"[^\W\d_][^\W\d_'’-]+")
PHRASE = re.compile(rf"[\w{CLOSE}'’)][,:;.]? [\w{OPEN}(]")
NOT_WORDS = re.compile(
    r".*(?:[\\<]|=\(|max-age|'none'|\dpx|without CDI.* come by CDI)|(?:select|pragma|begin) |[A-Z', -]+$|.*\w\|\w|"
    r"echo |(?:--)?gpus real$|windlass up$|row remapping$|driver files$|container runtime$|replica set$|best score$|"
    r"(?:largest|smallest) first$"
)
"""Patterns, also of logs, headers, markup, SQL, headings of tables, names of checks, options and orders; and a way that
a runtime without CDI can't have, which the source excludes by a test that is not followed."""
LOG_METHODS = ("debug", "info", "warning", "error", "exception", "_send")
"""The last names a write that failed, for the log."""
PROGRAM_ERRORS = ("ValueError", "TypeError", "KeyError", "RuntimeError", "NotImplementedError", "AssertionError")


def room_texts(heading: str) -> Iterator[tuple[str, str]]:
    """(file, sentence) of a room."""
    earlier = [name for name in ROOMS if list(ROOMS).index(name) < list(ROOMS).index(heading)]
    known = {path for name in earlier for path in files_of(name)}
    for path in files_of(heading):
        if path in known:
            continue
        shown = path.relative_to(SOURCE / "windlass" if path.suffix == ".py" else ROOT)
        texts = texts_in(_module(path)) if path.suffix == ".py" else page_texts(path.read_text(), path.suffix)
        yield from ((str(shown), re.sub(" +", " ", text)) for text in texts)


def files_of(heading: str) -> list[Path]:
    base = SOURCE / "windlass"
    return sorted({path.resolve() for pattern in ROOMS[heading] for path in base.glob(pattern)})


def _module(path: Path) -> ModuleType:
    return importlib.import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts))


def is_phrase(text: str) -> bool:
    """Whether people read it as words, not as a name or a label."""
    plain = PLACEHOLDER.sub(f"{OPEN}{CLOSE}", text)
    if "\n" in text or NOT_WORDS.match(text):
        return False
    return len(WORD.findall(plain)) >= 2 and PHRASE.search(plain) is not None


# Python


def texts_in(module: ModuleType) -> list[str]:
    """Sentences as they leave a function, whole; then the parts of sentences that no whole one has."""
    run = _RoomRun(module)
    run.run_all()
    whole = [text for text in run.whole if is_phrase(text)]
    everything = "\n".join(whole)
    return whole + [text for text in run.parts if is_phrase(text) and text not in everything]


class _RoomRun(FunctionRun):
    """Runs every function of a module and keeps its texts."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module)
        self.whole, self.parts = dict[str, None](), dict[str, None]()

    def run_all(self) -> None:
        tree = ast.parse(inspect.getsource(self._module))
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.start(node, {})
                case ast.Module(body=body) | ast.ClassDef(body=body):
                    for statement in body:
                        if isinstance(statement, ast.Assign | ast.AnnAssign):
                            self._keep(self.parts, statement.value, {})

    def _statement(self, node: ast.stmt, scope: Scope, returned: list[str]) -> list[Scope]:
        # The texts of functions that are called are kept where those run themselves.
        if len(self._running) == 1 and not _is_for_programmers(node):
            for expression in ast.iter_child_nodes(node):
                if isinstance(expression, ast.expr):
                    self._keep(self.parts if _is_carried(node) else self.whole, expression, scope)
        return super()._statement(node, scope, returned)

    def texts(self, node: ast.expr, scope: Scope) -> Texts:
        found = super().texts(node, scope)
        match node:
            case ast.Call(func=ast.Attribute(attr="join")):
                return (*found, "")  # there may be none to join, and the function may test for that
        return found

    def _keep(self, kept: dict[str, None], node: ast.AST | None, scope: Scope) -> None:
        match node:
            case ast.JoinedStr() | ast.BinOp(op=ast.Add()) | ast.Constant(value=str()) | ast.Name():
                kept.update(dict.fromkeys(_stripped(self.texts(node, scope))))
                kept = self.parts
            case ast.Call(func=ast.Attribute(attr=name)) if name in LOG_METHODS:
                return
            case ast.Compare() | ast.Lambda() | None:
                return
        for child in ast.iter_child_nodes(node):
            self._keep(kept, child, scope)


def _is_for_programmers(node: ast.stmt) -> bool:
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name))):
            return name in PROGRAM_ERRORS
        case ast.Expr(value=ast.Constant()):
            return True
    return isinstance(node, ast.Assert | Function | ast.ClassDef)


def _is_carried(node: ast.stmt) -> bool:
    """Whether a variable carries the text on to where it is used."""
    match node:
        case ast.Assign(targets=[ast.Name() | ast.Tuple()]) | ast.AugAssign(target=ast.Name()):
            return not isinstance(node.value, ast.List | ast.ListComp | ast.Dict | ast.DictComp | ast.Call)
    return False


def _stripped(texts: Texts) -> Iterator[str]:
    return (text.strip(" \n,;") for text in texts)


# TypeScript and HTML

TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`", re.DOTALL)
NOT_SHOWN = re.compile(
    r"(class(es)?: |(class|look|classes) = |from |querySelector|closest|ask|Collator|Error|data-key\": )[^;,]*$"
)
HTML_TEXT = re.compile(r">([^<>{}]+)<|(?:aria-label|title|placeholder|alt)=\"([^\"]*)\"")
COUNTED = re.compile(r"count\((.+), \"(\w+)\"\)")
METHODS = ("length", "join", "toLocaleString", "map")
PATH = re.compile(r"[A-Za-z_][\w.?!]*")


def page_texts(source: str, suffix: str) -> list[str]:
    if suffix == ".html":
        found = (" ".join((first or second).split()) for first, second in HTML_TEXT.findall(source))
    else:
        found = (text for text in _literals(source))
    return [text for text in dict.fromkeys(_stripped(tuple(found))) if is_phrase(text)]


def _literals(source: str) -> Iterator[str]:
    """Strings and templates, `${…}` as a placeholder; then the strings inside of `${…}`."""
    place = 0
    while found := TOKEN.search(source, place):
        place = found.end()
        if found[0] == "`":
            text, place, inside = _template(source, place)
        else:
            text, inside = found[0][1:-1], []
        if found[0][0] != "/" and not NOT_SHOWN.search(source[max(0, found.start() - 120) : found.start()]):
            yield text
            for expression in inside:
                yield from _literals(expression)


def _template(source: str, place: int) -> tuple[str, int, list[str]]:
    """The text of a template that begins here, its end, and the expressions in it."""
    text, inside = "", list[str]()
    while source[place] != "`":
        if not source.startswith("${", place):
            text, place = text + source[place], place + 1
            continue
        end = _end_of_expression(source, place + 2)
        inside.append(source[place + 2 : end])
        text, place = text + _placeholder(inside[-1]), end + 1
    return text, place + 1, inside


def _placeholder(expression: str) -> str:
    """`{users}` of `users.length` and of `users.join(", ")`, `{parts} slices` of `count(parts.length, "slice")`."""
    counted = COUNTED.fullmatch(expression)
    path = PATH.search(TOKEN.sub("", counted[1] if counted else expression.removeprefix("Math.round(")))
    names = [name for name in re.findall(r"\w+", path[0] if path else "value") if name not in METHODS]
    return f"{OPEN}{names[-1]}{CLOSE}" + (f" {counted[2]}s" if counted else "")


def _end_of_expression(source: str, place: int) -> int:
    depth = 0
    while depth or source[place] != "}":
        if source[place] == "`":
            place = _template(source, place + 1)[1]
            continue
        depth += {"{": 1, "}": -1}.get(source[place], 0)
        place += 1
    return place
