"""Let a virtual environment see the packages of the interpreter that runs this, without touching that one.

Usage: PYTHON .ci/overlay.py VENV. If PYTHON has torch, its site directories are appended to VENV's path (they come
after VENV's own). VENV/constraints.txt is constraints.txt without what PYTHON has already, so that pip accepts what
is there: a borrowed torch is never installed again. Without torch in PYTHON, VENV stays an environment of its own.
"""

import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path


def main() -> None:
    """Write VENV/constraints.txt and, where torch can be borrowed, the path file."""
    venv = Path(sys.argv[1])
    constraints = Path("constraints.txt").read_text(encoding="utf-8").splitlines()
    if importlib.util.find_spec("torch") is not None:
        borrowed = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        # addsitedir rather than bare paths: path files inside (conda, editable installs) count too
        lines = [f"import site; site.addsitedir({path!r})" for path in borrowed]
        (own_site,) = venv.glob("lib/python*/site-packages")
        (own_site / "zz_borrowed.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
        present = {canonical(dist.metadata["Name"]) for dist in importlib.metadata.distributions(path=borrowed)}
        constraints = [line for line in constraints if canonical(line.partition("==")[0]) not in present]
    (venv / "constraints.txt").write_text("\n".join(constraints) + "\n", encoding="utf-8")


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
