"""The version of this client, which drives the program of the same minor version."""

__version__ = "0.1.0"
