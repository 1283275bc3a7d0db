"""rankscope observes a distributed PyTorch training: which rank, which cause, since when, how sure.

    import rankscope.auto                      # the one line; or, with more to say:
    import rankscope
    rankscope.attach(job_id="llm-7b")
    rankscope.log(loss=loss); rankscope.step(tokens=n)
    with rankscope.span("eval"): ...
    rankscope.detach()

Importing it loads neither torch nor pyarrow nor duckdb; the names below are loaded when first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankscope.tracer.api import attach, detach, log, span, step

    __version__: str

__all__ = ["__version__", "attach", "detach", "log", "span", "step"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rankscope' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("rankscope")
    else:
        from rankscope.tracer import api

        value = getattr(api, name)
    globals()[name] = value
    return value
