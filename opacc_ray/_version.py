"""The version, in a file that imports nothing."""

__version__ = "0.3.0"
