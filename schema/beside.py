"""Texts that lie beside a module: read as files, for `importlib.resources` loads zipfile and shutil: 10 ms of work."""

import os


def text_beside(module_file: str, name: str) -> str:
    """The text `name` in the folder of the module whose `__file__` is given. Raises OSError."""
    with open(os.path.join(os.path.dirname(module_file), name), encoding="utf-8") as file:
        return file.read()
