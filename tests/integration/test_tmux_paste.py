"""What is pasted arrives byte for byte, in a real pane of a real tmux."""

from __future__ import annotations

import random
import threading

import pytest

from integration.tmux_kit import Echo, answer
from kit_system import until
from lastword.actors.core.errors import RejectedError, TransportError

pytestmark = pytest.mark.tmux

OPEN, CLOSE = b"\x1b[200~", b"\x1b[201~"

MATRIX = {
    "one byte": b"x",
    "100 kB": b"0123456789abcdef" * 6400,
    "300 kB of many bytes": ("äöü€日本語👩‍👩‍👧 line\n" * 7000).encode()[:300_000],
    "4,000 lines": b"".join(b"line %d of four thousand\n" % n for n in range(4000)),
    "only a newline": b"\n",
    "tabs": b"\ta\t\tb\t",
    "CRLF": b"a\r\nb\r\n\r\n",
    "emoji with ZWJ": "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301".encode(),
    "CJK": "漢字かな交じり文한국어".encode(),
    "trailing backslash": b"end \\",
    "many backslashes": b"\\\\\\ \\n \\033 \\e \\u00e9",
    "slash": b"/help",
    "bang": b"!ls",
    "hash": b"#note",
    "at": b"@file",
    "dash": b"-p -r --",
    "quotes": b"' \" '' \"\" '\"'\"' `",
    "dollar": b"$(touch x) ${HOME} $HOME `id` ~ ~root",
    "formats": b"#{pane_id} #(id) #[fg=red] ##{x} #S %H %%",
    "semicolons": b"a ; kill-server ; \\; b;",
    "braces": b"{ a } } {",
    "control lines": b"%end 1 2 0\n%begin 1 2 1\n%error 1 2 1\n%exit\n%output %0 x",
    "blanks outside": b"   x   \n\n",
    "NBSP and BOM": "\u00a0a\u00a0\ufeff\u2028\u0085".encode(),
    "not UTF-8": b"\xff\xfe\x80 \xc3",
}


@pytest.fixture(scope="module")
def echo(server, tmp_path_factory):
    return Echo(server, tmp_path_factory.mktemp("echo"), "paste")


@pytest.mark.contract("C24")
@pytest.mark.parametrize("name", MATRIX)
def test_c24_a_paste_arrives_byte_for_byte(server, echo, name):
    data = MATRIX[name]
    assert answer(echo.pane.paste, data) is None
    assert echo.take(OPEN + data + CLOSE) == OPEN + data + CLOSE
    assert server.control.call(b"list-buffers", 5).lines == ()


@pytest.mark.contract("C24")
def test_c24_two_hundred_random_unicode_pastes_arrive_in_order(echo):
    rng = random.Random(7)
    texts = []
    for _ in range(200):
        picked = [
            chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xA0, 0xD800), rng.randrange(0x1F300, 0x1FAFF))))
            for _ in range(rng.randrange(1, 300))
        ]
        texts.append("".join([*picked, "\n", "\t"]).encode())
    errors: list[object] = []
    for text in texts:
        echo.pane.paste(text, errors.append)
    expected = b"".join(OPEN + text + CLOSE for text in texts)
    assert echo.take(expected) == expected
    until(lambda: len(errors) == 200)
    assert set(errors) == {None}


def test_c24_pastes_from_eight_threads_never_mix(echo):
    texts = {thread: [f"<{thread}.{n}>".encode() * 50 for n in range(20)] for thread in range(8)}
    errors: list[object] = []

    def run(thread: int) -> None:
        for text in texts[thread]:
            echo.pane.paste(text, errors.append)

    threads = [threading.Thread(target=run, args=(n,)) for n in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [OPEN + text + CLOSE for one in texts.values() for text in one]
    got = echo.take(b"".join(everything))
    assert sorted(part + CLOSE for part in got.split(CLOSE)[:-1]) == sorted(everything)
    for thread, mine in texts.items():
        places = [got.index(text) for text in mine]
        assert places == sorted(places), f"thread {thread}'s pastes arrived out of order"
    assert set(errors) == {None}


@pytest.mark.parametrize("data", [b"a\x1b[201~b", b"\0", b"\x03", b"\x7f", b"x" * (4 * 1024 * 1024 + 1)])
def test_c24_what_could_break_out_of_the_paste_is_refused_and_nothing_sent(echo, data):
    error = answer(echo.pane.paste, data)
    assert isinstance(error, RejectedError)
    assert error.kind == "unsupported_text"
    assert answer(echo.pane.paste, b"sentinel") is None
    assert echo.take(OPEN + b"sentinel" + CLOSE) == OPEN + b"sentinel" + CLOSE


@pytest.mark.contract("C62")
def test_c62_a_paste_leaves_no_text_in_tmux(server, echo):
    assert answer(echo.pane.paste, b"a secret prompt") is None
    echo.take(OPEN + b"a secret prompt" + CLOSE)
    assert server.control.call(b"list-buffers", 5).lines == ()
    assert "secret" not in server.control.call(b"show-messages", 5).text


@pytest.mark.contract("C62")
def test_c62_a_failed_paste_leaves_no_text_in_tmux(server):
    nobody = server.adopt("%99999", 1, 1, "nobody")
    error = answer(nobody.paste, b"a secret prompt")
    server.forget(nobody)
    assert isinstance(error, TransportError)
    assert "secret" not in str(error)
    assert server.control.call(b"list-buffers", 5).lines == ()
    assert "secret" not in server.control.call(b"show-messages", 5).text
