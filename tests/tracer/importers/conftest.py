"""Importing traces that tests write below their folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.tracer.importers.kineto import import_kineto
from rankscope.tracer.importers.request import Imported, Request


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Imported]:
    """Import the files in `tmp_path/in` (or `paths`)."""
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))

    def run(*paths: Path, **more: Any) -> Imported:
        chosen = tuple(map(str, paths)) or (str(tmp_path / "in"),)
        return import_kineto(Request(chosen, str(tmp_path / "run"), **more))

    return run
