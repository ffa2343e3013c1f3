"""Errors a user meets: one clear sentence each, and the exit code the command line ends with.

Every message names the value, the place it came from and the fix. The exit codes are part of the
command line's contract (README, "Exit codes"): a script may branch on them.
"""


class OpaccError(Exception):
    """Base of all errors that are raised on purpose. Its text is shown to the user as it is."""

    exit_code = 1
    details = ""  # a traceback of the user's own code, for a log file; the text names what is needed to fix it


class SpecError(OpaccError, ValueError):
    """A job's specification, or a parameter of a method, cannot be used as it stands."""

    exit_code = 2


class StorageError(OpaccError):
    """Bytes could not be listed, read or written: bucket, credentials, network or path."""

    exit_code = 3


class ClusterError(OpaccError):
    """The Ray cluster cannot give what the job asks for, or lost the same work again and again."""

    exit_code = 4


class DataError(OpaccError, ValueError):
    """The pool, the model or the features are not usable: the message names the example or layer."""

    exit_code = 5


class LabelError(OpaccError, ValueError):
    """A file of labels cannot be joined to the selection it answers."""

    exit_code = 6
