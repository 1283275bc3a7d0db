"""Every test reads only its own leftovers."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LOCAL_DIR", str(tmp_path / "local"))
