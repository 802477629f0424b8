"""Flower's messages as bytes: what travels, how much of it there is, and what tells one content from another."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.common import serde
from flwr.common.serde_utils import error_from_proto, error_to_proto, metadata_to_proto
from flwr.proto.error_pb2 import Error as ProtoError  # type: ignore[attr-defined]
from flwr.proto.message_pb2 import Message as ProtoMessage  # type: ignore[attr-defined]
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict  # type: ignore[attr-defined]

_KEPT = 8  # contents that were encoded last; many messages of a round have the same


@dataclass(frozen=True)
class Body:
    """What a message says, as bytes: its records, or an error. ``digest`` tells it from others."""

    data: bytes
    is_error: bool = False
    digest: str = ""

    @staticmethod
    def of(data: bytes, is_error: bool = False) -> Body:
        """A body with its digest."""
        return Body(data, is_error, hashlib.sha256((b"e" if is_error else b"c") + data).hexdigest())


EMPTY = Body.of(b"")


def records_to_bytes(records: RecordDict) -> bytes:
    """Records as protobuf, the same bytes for the same records."""
    proto = serde.recorddict_to_proto(records)
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def records_from_bytes(data: bytes) -> RecordDict:
    """The records that `records_to_bytes` wrote."""
    return serde.recorddict_from_proto(ProtoRecordDict.FromString(data))


def body_of(message: Message) -> Body:
    """What a message says."""
    if message.has_error():
        return Body.of(error_to_proto(message.error).SerializeToString(deterministic=True), True)
    return Body.of(records_to_bytes(message.content))


def error_body(code: int, reason: str) -> Body:
    """An error of a client as a body."""
    return Body.of(error_to_proto(Error(code=code, reason=reason)).SerializeToString(deterministic=True), True)


class Encoder:
    """Encodes messages; equal contents that follow each other share their bytes."""

    def __init__(self) -> None:
        self._latest: OrderedDict[str, Body] = OrderedDict()

    def body(self, message: Message) -> Body:
        """What a message says."""
        return self.shared(body_of(message))

    def shared(self, body: Body) -> Body:
        """The body that is kept already, where there is an equal one."""
        known = self._latest.setdefault(body.digest, body)
        self._latest.move_to_end(body.digest)
        while len(self._latest) > _KEPT:
            self._latest.popitem(last=False)
        return known


def size_bytes(message: Message, body: Body) -> int:
    """How long a message is with all its metadata, as protobuf.

    That is the length of ``message_to_proto(message).SerializeToString()``, without encoding the content once more.
    """
    frame: int = ProtoMessage(metadata=metadata_to_proto(message.metadata)).ByteSize()
    length = len(body.data)
    return frame + 1 + _varint_bytes(length) + length


def _varint_bytes(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))


def reply_to(message: Message, body: Body, message_id: str, created_at: float) -> Message:
    """The reply with this body to a message, as it arrives: made at an instant, valid for as long as the message still is."""
    said: Any = error_from_proto(ProtoError.FromString(body.data)) if body.is_error else records_from_bytes(body.data)
    reply = Message(said, reply_to=message)
    values = reply.metadata.__dict__
    values["_message_id"], values["_created_at"] = message_id, created_at
    values["_ttl"] = message.metadata.ttl - (created_at - message.metadata.created_at)
    return reply
