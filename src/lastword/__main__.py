"""``python -m lastword``: the same as the ``lastword`` script."""

from lastword.runtime.command import main

if __name__ == "__main__":
    main()
