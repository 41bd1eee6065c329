"""Plugins of the tests."""

pytest_plugins = ["pytester"]
