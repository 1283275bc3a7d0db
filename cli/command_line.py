"""From words on a command line to the arguments of a command's function, by its signature.

Options and arguments come in any order; after "--" everything is an argument. An option's value follows as the next
word, or after "=". Own code because what the commands need is this page, and the libraries for it that the first
versions used took 0.2 s to load: longer than most commands work.
"""

import inspect
import os
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from .arguments import Argument, BadUsage, Option

REQUIRED: Final = inspect.Parameter.empty
HELP: Final = ("-h", "--help")


class HelpWanted(Exception):
    """The command line asks for help."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a command. names: of an option, none for an argument. kind: what its text is turned into."""

    name: str
    names: tuple[str, ...]
    kind: Callable[[str], Any]
    is_list: bool
    default: Any
    told: Argument | Option

    @property
    def is_switch(self) -> bool:
        """An option without a value."""
        return self.kind is bool

    @property
    def is_required(self) -> bool:
        """It must be given."""
        return self.default is REQUIRED

    @property
    def label(self) -> str:
        """As the help and messages call it."""
        return "' / '".join(self.names) or self.told.metavar or self.name.upper()


def parameters(command: Callable[..., Any]) -> tuple[Parameter, ...]:
    """What `command` takes, in the order of its signature."""
    hints = get_type_hints(command, include_extras=True)
    return tuple(
        _parameter(name, hints[name], item.default) for name, item in inspect.signature(command).parameters.items()
    )


def parse(words: Sequence[str], expected: Sequence[Parameter]) -> dict[str, Any]:
    """The function's arguments by name. Raises BadUsage, HelpWanted."""
    options = {name: item for item in expected for name in item.names}
    given: dict[str, list[Any]] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if word.startswith("-") and word != "-":
            _take_option(word, left, options, given)
        else:
            rest.append(word)
    _take_arguments(rest, [item for item in expected if not item.names], given)
    return {item.name: _value(item, given.get(item.name)) for item in expected}


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    told = next((item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Argument | Option)), None)
    if told is None:
        raise TypeError(f"parameter {name} of a command declares neither Argument nor Option")
    kind = get_args(hint)[0]
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(item for item in get_args(kind) if item is not type(None))
    is_list = get_origin(kind) is list
    names = told.names if isinstance(told, Argument) or told.names else (f"--{name.replace('_', '-')}",)
    return Parameter(name, names, get_args(kind)[0] if is_list else kind, is_list, default, told)


def _take_option(word: str, left: list[str], options: dict[str, Parameter], given: dict[str, list[Any]]) -> None:
    name, has_value, value = word.partition("=") if word.startswith("--") else (word[:2], word[2:] != "", word[2:])
    if name in HELP:
        raise HelpWanted
    item = options.get(name)
    if item is None:
        raise BadUsage(f"No such option: {name}{_nearest(name, options)}")
    if item.is_switch:
        if has_value:
            raise BadUsage(f"Option '{name}' does not take a value")
        given[item.name] = [True]
        return
    if not has_value and not left:
        raise BadUsage(f"Option '{name}' requires an argument")
    value = value if has_value else left.pop(0)
    given[item.name] = [*(given.get(item.name, []) if item.is_list else []), _converted(item, name, value)]


def _nearest(name: str, options: dict[str, Parameter]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, [*options, *HELP])
    return f" (Possible options: {', '.join(close)})" if close else ""


def _take_arguments(rest: list[str], expected: list[Parameter], given: dict[str, list[Any]]) -> None:
    """Each argument takes one word; one that takes several leaves the later ones a word each."""
    for number, item in enumerate(expected):
        count = max(0, len(rest) - (len(expected) - number - 1)) if item.is_list else min(1, len(rest))
        if count:
            given[item.name] = [_converted(item, item.label, word) for word in rest[:count]]
        rest = rest[count:]
    if rest:
        raise BadUsage(f"Got unexpected extra argument(s) ({' '.join(rest)})")


def _value(item: Parameter, given: list[Any] | None) -> Any:
    variable = item.told.envvar if isinstance(item.told, Option) else ""
    if given is None and variable and (text := os.environ.get(variable)):
        given = [_converted(item, variable, text)]
    if given is not None:
        return given if item.is_list else given[-1]
    if item.is_required:
        raise BadUsage(f"Missing {'option' if item.names else 'argument'} '{item.label}'")
    return item.default


def _converted(item: Parameter, name: str, text: str) -> Any:
    try:
        value = item.kind(text)
    except ValueError:
        raise BadUsage(f"Invalid value for '{name}': {text!r} is not a valid {item.kind.__name__}") from None
    limits = item.told.limits if isinstance(item.told, Option) else None
    if limits is not None and limits.least is not None and not value >= limits.least:
        raise BadUsage(f"Invalid value for '{name}': {text} is less than {limits.least:g}")
    if limits is not None and limits.most is not None and not value <= limits.most:
        raise BadUsage(f"Invalid value for '{name}': {text} is more than {limits.most:g}")
    return value
