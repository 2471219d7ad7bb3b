"""The command line: `app` holds all commands, and `main` runs it."""

from lkgp.cli.app import app, main

__all__ = ["app", "main"]
