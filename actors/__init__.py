"""Rules inside, shells around: the domain of lastword. Import its submodules."""
