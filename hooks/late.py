"""Patches on modules that the job may import later, or never: put on when they come, never loading them."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


def when_loaded(module: str, came: Callable[[Any, ExitStack], None], undo: ExitStack) -> None:
    """Call `came` with the module and a stack for its undoing, now or when it is imported; not after `undo` closed."""
    late = undo.enter_context(ExitStack())
    is_over: list[bool] = []
    undo.callback(is_over.append, True)

    def loaded(found: Any) -> None:
        if not is_over:
            came(found, late)

    if module in sys.modules:
        loaded(sys.modules[module])
    else:
        import wrapt

        wrapt.register_post_import_hook(loaded, module)
