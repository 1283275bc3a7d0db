"""The inflater of gzip files: Intel's ISA-L where it is installed, which takes less than half the time of zlib.

Both have the interface of `zlib.decompressobj`. There is no ISA-L for every processor, so it is never needed.
"""

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_GZIP: Final = 31
"""Window bits: the largest window, with gzip's header."""


def _made() -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    try:
        fast: Any = import_module("isal.isal_zlib")
    except ImportError:
        return lambda: zlib.decompressobj(_GZIP), (zlib.error,)
    return lambda: fast.decompressobj(_GZIP), (zlib.error, fast.error)


new_inflater, InflateError = _made()
