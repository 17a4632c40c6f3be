"""Ids: how they are spelt is a promise, for they stand in journals; and they sort by time (C01)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastword.actors.core.ids import ENTROPY_BYTES, mint_message, mint_session, mint_turn

ENTROPY = st.binary(min_size=ENTROPY_BYTES, max_size=ENTROPY_BYTES)
WALL_S = st.integers(0, 2**48 // 1000 - 1)
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def test_c01_an_id_is_its_prefix_and_crockford_digits() -> None:
    assert mint_turn(1_700_000_000.123, bytes(range(10))) == "t_01hf7yat3v000g40r40m30e209"
    assert mint_message(0.0, bytes(10)) == "m_" + "0" * 26
    assert mint_session(2**48 / 1000 - 0.001, b"\xff" * 10) == "s_7" + "z" * 25
    with pytest.raises(ValueError, match="10 bytes of entropy, not 3"):
        mint_turn(0.0, b"abc")


@given(WALL_S, ENTROPY)
def test_c01_an_id_holds_its_time_and_all_of_its_entropy(at: int, entropy: bytes) -> None:
    value = 0
    for digit in mint_turn(float(at), entropy)[2:]:
        value = value * 32 + DIGITS.index(digit)
    assert (value >> 80, (value & (1 << 80) - 1).to_bytes(10, "big")) == (at * 1000, entropy)


@given(WALL_S, WALL_S, ENTROPY, ENTROPY)
def test_c01_ids_sort_by_the_time_they_were_minted(first: int, second: int, one: bytes, other: bytes) -> None:
    if first < second:
        assert mint_turn(float(first), one) < mint_turn(float(second), other)
