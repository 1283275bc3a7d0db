"""Which rankscope computed a number."""

import os
import sys
from functools import cache
from typing import Final

_NAME: Final = "rankscope-"
_ENDING: Final = ".dist-info"


@cache
def own_version() -> str:
    """The installed version of rankscope; empty in a source tree that is not installed.

    Read off the name of the installation's folder, since `importlib.metadata` takes as long to load as many an answer
    takes (it brings the parser of e-mail), and asked where there are none or several.
    """
    found = {name.removeprefix(_NAME).removesuffix(_ENDING) for path in sys.path for name in _names(path)}
    return found.pop() if len(found) == 1 else _told()


def _names(path: str) -> list[str]:
    try:
        return [name for name in os.listdir(path or ".") if name.startswith(_NAME) and name.endswith(_ENDING)]
    except OSError:
        return []


def _told() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rankscope")
    except PackageNotFoundError:
        return ""
