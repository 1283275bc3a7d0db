"""What `rankscope run` has every Python process of a job import at its start: torch, once imported, is observed.

Nothing of rankscope is loaded until a process has imported torch: pip, git helpers and shells of their own pay for one
entry in `sys.meta_path`. Whether the process is a rank is decided then, by `rankscope.tracer.rank_or_not`. The user's
own `sitecustomize` is found behind this folder, takes its name, and runs as it would have. Raises what that raises.

Standard library only, for any Python 3: the job's interpreter need not be the one that rankscope was started with.
"""

import os
import sys

TYPE_CHECKING = False  # typing itself would cost every process of the job some ms
if TYPE_CHECKING:
    from typing import Any


class _TorchFinder:
    """First of `sys.meta_path` until torch was imported."""

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """The spec that the other finders give for torch, with a loader that tells when torch is whole."""
        if name != "torch":
            return None
        for finder in list(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _TorchLoader(spec.loader, self)
                return spec
        return None


class _TorchLoader:
    """Stands for torch's own loader while torch is imported; the module never sees it."""

    def __init__(self, original: "Any", finder: _TorchFinder) -> None:
        self._original, self._finder = original, finder

    def __getattr__(self, name: str) -> "Any":
        return getattr(self._original, name)

    def create_module(self, spec: "Any") -> "Any":
        """As torch's own loader does."""
        return self._original.create_module(spec)

    def exec_module(self, module: "Any") -> None:
        """As torch's own loader does; then, if torch is whole, the process is observed if it is a rank."""
        module.__spec__.loader = module.__loader__ = self._original
        self._original.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            _observe()


def _observe() -> None:
    """Attach, if this process is a rank. Never raises."""
    try:
        from rankscope.tracer.rank_or_not import claim_rank

        if claim_rank():
            import rankscope.auto  # noqa: F401
    except ImportError as error:
        _say("off: {} cannot import it ({}); install rankscope there too".format(sys.executable, error))  # noqa: UP032
    except Exception as error:  # noqa: BLE001 - the guard of a job that nobody edited
        _say("off: {}: {}".format(type(error).__name__, error))  # noqa: UP032


def _say(text: str) -> None:
    try:
        sys.stderr.write("rankscope: " + text + "\n")
    except Exception:  # noqa: BLE001 - there may be no standard error
        return


def _chain() -> None:
    """Take this folder off the path, and run the `sitecustomize` that stands behind it, under that name."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    mine = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [part for part in sys.path if os.path.abspath(part or ".") != mine]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if os.environ.get("RANKSCOPE", "").strip() != "0":
        sys.meta_path.insert(0, _TorchFinder())
    _chain()
