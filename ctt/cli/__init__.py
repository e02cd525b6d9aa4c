"""The command line: one file a command, `main` dispatches.

`main` and this file import nothing heavy, so that ``ctt --help`` answers at once.
"""
