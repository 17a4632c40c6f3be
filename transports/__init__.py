"""The edge: the only code that talks to the world. Moves bytes, reports what it saw, decides nothing."""
