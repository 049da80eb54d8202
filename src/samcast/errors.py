"""Every exception that a user of Samcast may catch.

    SamcastError
        ConfigError     also a ValueError

The text of an error names what went wrong, with what, and what to do about it. Bugs of Samcast's
own are assertions and stand outside this tree: nobody should catch them.
"""


class SamcastError(Exception):
    """Anything Samcast raises on purpose. Catch a subclass where you can act on the cause."""


class ConfigError(SamcastError, ValueError):
    """A setting is out of range or contradicts another. Mend the one it names and start again."""
