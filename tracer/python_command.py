"""What a Python command line runs: the interpreter's own options, then a script, a module, or a text.

Follows "Command line and environment" of Python's documentation (3.10 to 3.14).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

TEXT: Final = "-c"
_WITH_VALUE: Final = "WX"
"""Options that take the rest of their word, or else the next word."""
_LONG_WITH_VALUE: Final = "--check-hash-based-pycs"


class PythonCommand(NamedTuple):
    """options: the letters of the interpreter's options, in order. name: of the module or script; "-c"; "" for none."""

    options: str
    is_module: bool
    name: str


def python_command(arguments: Sequence[str]) -> PythonCommand:
    """Read a command line that begins with the interpreter."""
    words, options = list(arguments[1:]), ""
    while words:
        word = words.pop(0)
        if word == "--":
            return PythonCommand(options, False, words[0] if words else "")
        if word == "-" or not word.startswith("-"):
            return PythonCommand(options, False, word)
        if word.startswith("--"):
            if word == _LONG_WITH_VALUE and words:
                words.pop(0)
            continue
        letters, last, rest = _letters(word)
        options += letters
        if last == "m":
            return PythonCommand(options, True, rest or (words[0] if words else ""))
        if last == "c":
            return PythonCommand(options, False, TEXT)
        if last and not rest and words:
            words.pop(0)
    return PythonCommand(options, False, "")


def _letters(word: str) -> tuple[str, str, str]:
    """Of a word such as -uW: its letters; the one that takes a value, if any; and the value, as far as it is here."""
    for position, letter in enumerate(word[1:], 2):
        if letter in "cm" or letter in _WITH_VALUE:
            return word[1 : position - (letter in "cm")], letter, word[position:]
    return word[1:], "", ""
