"""``python -m emulator`` is ``hfl``."""

import sys

if (
    not sys.flags.safe_path
):  # Python has put the current folder first: nothing there is to take the place of anything else
    sys.path.append(sys.path.pop(0))

from emulator.cli import main

main()
