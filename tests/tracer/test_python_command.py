"""Python's own options are told from the script's."""

import pytest

from rankscope.tracer.python_command import python_command


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python", ("", False, "")),
        ("python train.py -I", ("", False, "train.py")),
        ("python -u -B train.py", ("uB", False, "train.py")),
        ("python -Wignore -X dev train.py", ("WX", False, "train.py")),
        ("python -uW ignore train.py", ("uW", False, "train.py")),
        ("python -m pkg.train -S", ("", True, "pkg.train")),
        ("python -Impkg", ("I", True, "pkg")),
        ("python -SEc pass", ("SE", False, "-c")),
        ("python -I -- train.py", ("I", False, "train.py")),
        ("python --check-hash-based-pycs always -s train.py", ("s", False, "train.py")),
        ("python - x", ("", False, "-")),
    ],
)
def test_options_and_program(line, expected):
    assert python_command(line.split()) == expected
