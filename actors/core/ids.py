"""Names of things: time-ordered, unique for ever, minted from a time and entropy that are passed in (C01).

An id is ``prefix_`` + 26 characters of Crockford base 32 (48 bits of Unix milliseconds, 80 bits of entropy), in
lower case, so that ids of one kind sort by the time they were minted.
"""

from __future__ import annotations

from typing import NewType

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
MessageId = NewType("MessageId", str)

ENTROPY_BYTES = 10
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_TIME_BITS = 48


def _mint(prefix: str, now_wall_s: float, entropy: bytes) -> str:
    if len(entropy) != ENTROPY_BYTES:
        msg = f"an id takes {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}"
        raise ValueError(msg)
    value = (int(now_wall_s * 1000) & ((1 << _TIME_BITS) - 1)) << 80 | int.from_bytes(entropy, "big")
    return f"{prefix}_" + "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -1, -10)])


def mint_session(now_wall_s: float, entropy: bytes) -> SessionId:
    """A new session id, ``s_…``; ``now_wall_s`` in Unix seconds."""
    return SessionId(_mint("s", now_wall_s, entropy))


def mint_turn(now_wall_s: float, entropy: bytes) -> TurnId:
    """A new turn id, ``t_…``; ``now_wall_s`` in Unix seconds."""
    return TurnId(_mint("t", now_wall_s, entropy))


def mint_message(now_wall_s: float, entropy: bytes) -> MessageId:
    """A new message id, ``m_…``; ``now_wall_s`` in Unix seconds."""
    return MessageId(_mint("m", now_wall_s, entropy))
