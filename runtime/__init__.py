"""The public door of lastword (C10). Hosts need nothing else."""

__all__: list[str] = []
