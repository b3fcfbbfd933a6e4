"""Texts with placeholders: what an expression of the source may read.

`message_templates` makes them, `message_examples` fills them in.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable

OPEN, CLOSE = "⟦", "⟧"
PLACEHOLDER = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")
"""A value in a text. Not braces, which some texts have themselves."""
MAX_VARIANTS = 40
"""Texts that are kept of one expression, and of one variable."""
FUNCTION = re.compile(
    r"(?!format_|nested_|describe_(?:cluster|step|way)|(?:name|key|uid|namespace)_of$)_?[a-z]+_[a-z_]+"
)
"""Functions whose name is the noun of what they return."""
PLURALS = {"its": "their", "has": "have", "is": "are", "does": "do", "was": "were"}

Texts = tuple[str, ...]


def is_sentence(text: str) -> bool:
    """Whether it has words, not only placeholders."""
    return re.search(r"[A-Za-z]{2}", PLACEHOLDER.sub("", text)) is not None


def is_value(texts: Texts) -> bool:
    """Whether a variable with these texts is better shown by its name: a name or an amount, not words."""
    if not any(texts):
        return False
    has_value = any(PLACEHOLDER.fullmatch(text) for text in texts)
    return not any(map(is_sentence, texts)) or (has_value and not any(" " in text for text in texts))


def shown(texts: Texts) -> Texts:
    """What may be left out is shown; of single words, and of singular and plural, the plural, or else the last."""
    found = [text for text in texts if text]
    if len(found) > 1 and not any(" " in text or OPEN in text for text in found):
        return (next((text for text in found if text in PLURALS.values()), found[-1]),)
    return tuple({_as_plural(text): text for text in found}.values()) or ("",)


def _as_plural(text: str) -> str:
    """Equal for singular and plural of the same text, and for `1 pod` and a number of pods."""
    words = ("1" if PLACEHOLDER.fullmatch(word) else word for word in text.split())
    return " ".join(PLURALS.get(word, word.removesuffix("s")) for word in words)


def joined(parts: Iterable[Texts]) -> Texts:
    """Every combination of the texts of the parts."""
    variants = itertools.product(*(part or ("",) for part in parts))
    return distinct("".join(texts) for texts in itertools.islice(variants, MAX_VARIANTS))


def distinct(texts: Iterable[str]) -> Texts:
    return tuple(itertools.islice(dict.fromkeys(texts), MAX_VARIANTS))


def placeholder_text(node: ast.expr) -> Texts:
    return (f"{OPEN}{placeholder(node)}{CLOSE}",)


def placeholder(node: ast.AST) -> str:
    """The noun of an expression: `node` of `candidate.node.name`, `message` of `nested_string(event, "message")`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr="name" | "title" | "key" | "metadata"):
            return placeholder(value)
        case ast.Attribute(attr=name):
            return name.strip("_")
        case ast.Call(func=ast.Name(id="len")):
            return "count"
        case ast.Call(func=ast.Name(id="format_amount" | "quota_amount"), args=[_, amount]):
            return placeholder(amount)
        case ast.Call(func=ast.Name(id=name), args=[_, *_, ast.Constant(value=str(field))]) if "nested" in name:
            return field
        case ast.Call(func=ast.Attribute(attr="join"), args=[values]):
            return placeholder(values)
        case ast.Call(func=ast.Name(id="str" | "int" | "sum" | "max" | "min" | "sorted"), args=[first, *_]):
            return placeholder(first)
        case ast.GeneratorExp(elt=element) | ast.ListComp(elt=element):
            return placeholder(element)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if FUNCTION.fullmatch(name):
            return name.strip("_").removesuffix("_of")
        case ast.Call(args=[first, *_]):
            return placeholder(first)
        case ast.Subscript(slice=ast.Constant(value=str(field))):
            return field
        case ast.Subscript(value=value) | ast.BinOp(left=value) | ast.FormattedValue(value=value):
            return placeholder(value)
        case ast.JoinedStr(values=parts):
            return next((placeholder(part) for part in parts if isinstance(part, ast.FormattedValue)), "value")
    return "value"
