"""The one exception for what a user can mend."""


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message is one sentence or two: the value, what is allowed, and how to mend it. The command line shows the
    message alone, without a traceback.
    """
