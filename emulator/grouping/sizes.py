"""The sizes of groups as parameters that several formation rules have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from emulator.registry import Params, Scale


class EqualSizes(Params):
    """For rules that divide the clients into groups as equal as possible."""

    size: Annotated[int, Field(ge=1)] = Field(description="the least number of clients in a group")

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """A group cannot be larger than the fleet."""
        if self.size > scale.clients:
            yield "size", f"groups of {self.size} clients or more cannot be formed from {scale.clients}"

    def largest(self, clients: int) -> int:
        """The fact ``largest`` of a rule with these sizes."""
        return -(-clients // max(1, clients // self.size))


class LeastSize(Params):
    """For rules that make one group after another."""

    min_size: Annotated[int, Field(ge=1)] = Field(5, description="the least number of clients in a group (MinGS)")
    leftover: Literal["join", "out"] = Field(
        "join",
        description="clients that are left at the end, too few for a group: each joins the group that it harms least, or they "
        "stay out of all groups",
    )

    def problems(self, scale: Scale) -> Iterator[tuple[str, str]]:
        """A group cannot be larger than the fleet."""
        if self.min_size > scale.clients:
            message = f"groups of {self.min_size} clients or more cannot be formed from {scale.clients}"
            yield "min_size", message
