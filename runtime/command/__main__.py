"""``python -m lastword.runtime.command``: the same as the ``lastword`` script."""

from lastword.runtime.command import main

main()
