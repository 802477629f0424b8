"""How the protocol ends early."""

from __future__ import annotations

from emulator.errors import HflError


class ProtocolAborted(HflError):  # noqa: N818 (the protocol's own word for it)
    """A party went no further: too few clients are left, or a message is not what the protocol asks for.

    Whoever raises it has revealed nothing in the step that it refused.
    """
