"""Which class a device activity belongs to: compute, communication or copy. By its category first, then by its name.

The rules for names lie in `kernel_classes.txt`; a user's file of the same form is asked before it. A kernel whose name
looks like communication but matches no rule counts as compute and is named, so that the table can be mended. Cost: one
search per distinct name; a trace has some hundreds.
"""

import re
from functools import cache
from typing import Final, NamedTuple

from .beside import text_beside
from .enums import KERNEL_CLASSES
from .errors import UnreadableFile

COPY_CATEGORIES: Final = frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})
KERNEL_CATEGORIES: Final = frozenset({"kernel"})
DEVICE_CATEGORIES: Final = COPY_CATEGORIES | KERNEL_CATEGORIES
"""Categories of a trace, in lower case, that are work of a device. The capitalised ones were written until 2021."""
HOST_CATEGORY: Final = "cpu_op"
"""Category of operators of the host, which table kernel holds where a job has no device."""

_SUSPECT: Final = re.compile(
    r"(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_kernel|send_?recv|p2p|comm(?!on|a|ent|it|ut)"
)


class Rule(NamedTuple):
    """Names in which `pattern` is found belong to `kernel_class`."""

    kernel_class: str
    pattern: re.Pattern[str]


class Classes:
    """The rules, a user's own first. own: text of the user's file; source: its name, for messages.

    Raises UnreadableFile for a line that is no rule.
    """

    def __init__(self, own: str = "", source: str = "") -> None:
        self._rules = (*_parse(own, source), *_shipped())
        self._known: dict[str, str] = {}

    def of(self, category: str, name: str) -> str:
        """The class of a device activity. category: as traced, in lower case."""
        if category in COPY_CATEGORIES:
            return "copy"
        found = self._known.get(name)
        if found is None:
            found = next((rule.kernel_class for rule in self._rules if rule.pattern.search(name)), "compute")
            self._known[name] = found
        return found


def looks_like_communication(name: str) -> bool:
    """The name speaks of communication. Said of a kernel that counts as compute, it is worth a line."""
    return _SUSPECT.search(name) is not None


@cache
def _shipped() -> tuple[Rule, ...]:
    return tuple(_parse(text_beside(__file__, "kernel_classes.txt"), "kernel_classes.txt"))


def _parse(text: str, source: str) -> list[Rule]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        kernel_class, _, pattern = line.strip().partition(" ")
        if not kernel_class or kernel_class.startswith("#"):
            continue
        if kernel_class not in KERNEL_CLASSES or not pattern.strip():
            known = ", ".join(KERNEL_CLASSES)
            raise UnreadableFile(f"{source}:{number}: a rule is a class ({known}) and a regular expression")
        try:
            found.append(Rule(kernel_class, re.compile(pattern.strip())))
        except re.error as error:
            raise UnreadableFile(f"{source}:{number}: {error}") from error
    return found
