"""Every error that rankscope raises on purpose.

RankscopeError
├── SettingsError (also ValueError)   a setting or argument is wrong; the text says the fix
├── HookUnavailable                   a hook cannot be installed here (library missing, too old)
├── CaptureError                      capture cannot start (no room for the ring, no local directory)
└── InputError                        a command's input cannot be used; exit status 2, one line
    ├── NotARun                       the path is no run directory
    ├── EmptyRun                      a run directory without a single row
    ├── MixedRuns                     two runs in one folder
    ├── NewerOntology                 written by a newer major version of the ontology
    ├── UnreadableFile                truncated, foreign or forbidden file
    ├── QueryError                    the SQL was refused or failed
    ├── NoEvidence                    the question needs rows that the run does not have
    └── MissingExtra                  a package that only some commands need is not installed
"""


class RankscopeError(Exception):
    """Base of all errors raised by rankscope."""


class SettingsError(RankscopeError, ValueError):
    """A setting or an argument is wrong; the message says how to mend it."""


class HookUnavailable(RankscopeError):
    """A hook cannot be installed in this process; the message says why."""


class CaptureError(RankscopeError):
    """Capture cannot start; training goes on without it."""


class InputError(RankscopeError):
    """A command's input cannot be used: one line, exit status 2."""


class NotARun(InputError):
    """The path is not a run directory."""


class EmptyRun(InputError):
    """The run directory holds no row."""


class MixedRuns(InputError):
    """One folder holds files of two runs."""


class NewerOntology(InputError):
    """The files were written by a newer major version of the ontology."""


class UnreadableFile(InputError):
    """A file is truncated, foreign or forbidden."""


class QueryError(InputError):
    """The SQL statement was refused or failed."""


class NoEvidence(InputError):
    """The question needs rows that the run does not have."""


class MissingExtra(InputError):
    """What was asked for needs a package that is not installed; the message says which extra brings it."""
