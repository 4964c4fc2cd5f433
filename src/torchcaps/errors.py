"""The root of the errors that a user can mend."""


class UserError(Exception):
    """Something outside of the program is wrong: a file, an option, the machine. The message says what to do.

    The command line prints it without a traceback, and exits with code 2.
    """


class OptionError(UserError, ValueError):
    """An option, on the command line or in the environment, that is not one."""
