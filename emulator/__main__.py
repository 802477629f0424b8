"""``python -m emulator`` is ``hfl``."""

from emulator.cli import main

main()
