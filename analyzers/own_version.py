"""Which rankscope computed a number."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def own_version() -> str:
    """The installed version of rankscope; empty in a source tree that is not installed."""
    try:
        return version("rankscope")
    except PackageNotFoundError:
        return ""
