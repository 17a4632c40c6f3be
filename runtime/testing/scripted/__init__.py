"""What the scripted programs are made of, a noun a module; ``../scripted_cli.py`` is the program that starts.

Stdlib only, for any Python from 3.9 that starts in tens of milliseconds: no pathlib, no typing, no ``zip(strict=)``.
The modules import each other relatively: a program that is run by its path finds them as ``scripted``, everyone else
below ``lastword.runtime.testing``.
"""
