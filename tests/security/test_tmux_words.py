"""What tmux could take for a command, a format or an escape is text to us: nothing runs, no other pane is reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults.pane_host import PaneHost
from host_kit import WAIT_S
from kit_system import until
from lastword import Session

pytestmark = [pytest.mark.tmux, pytest.mark.contract("C24")]

TRICKS = {
    "semicolon": "a ; run-shell 'touch CANARY' ; b",
    "trailing_semicolon": "a;",
    "escaped_semicolon": "a \\;",
    "lone_semicolon": "; run-shell 'touch CANARY'",
    "format": "#{pane_id} #{session_name} #{l:x} #S #W",
    "format_shell": "#(touch CANARY)",
    "shell": "$(touch CANARY) `touch CANARY` $HOME ${PATH}",
    "pane_target": "a %0 %1 @0 =hub: {last} send-keys -t %1 victim",
    "begin_end": "a\n%end 1 1 1\n%error 1 1 1\n%begin 1 1 1",
    "tilde": "a ~ ~/x ~root",
    "octal": "a \\073 \\012 \\000 \\u003b \\e \\x1b",
    "quotes": 'a " \' \\" \' ; run-shell "touch CANARY" "',
    "lines": "a\nrun-shell 'touch CANARY'\nkill-server\ndetach-client",
    "braces": "a { run-shell 'touch CANARY' } b",
    "key_names": "Enter Escape C-c C-u M-x",
    "options": "-t %1 -- -b x",
    "comment": "# kill-server",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory):
    script = tmp_path_factory.mktemp("script") / "script.json"
    steps = {}
    for name, text in TRICKS.items():
        title = f"\x1b]2;{text}\x07"
        blocks = [{"type": "text", "text": f"{text}\n{title}{title.replace(']2;', 'k')}\x1b\\"}]
        steps[name] = [{"blocks": blocks}]
    script.write_text(json.dumps({"scripts": steps}))
    with PaneHost("--script", str(script)) as made:
        yield made


@pytest.fixture(scope="module")
def victim(host: PaneHost) -> Session:
    session = host.session()
    assert host.run(session, "[[say:still here]]").status == "completed"
    return session


def prompts(host: PaneHost, session: Session) -> list[str]:
    records = [json.loads(line) for line in host.record(session).read_text().splitlines()]
    said = [record["message"]["content"] for record in records if record["type"] == "user"]
    return [text for text in said if isinstance(text, str)]


def untouched(host: PaneHost, victim: Session, canary: Path) -> None:
    """Nothing ran, the server and the other pane live and have heard nothing."""
    assert not canary.exists()
    assert host.server.is_alive()
    assert host.cli(victim).is_alive()
    before = prompts(host, victim)
    assert host.run(victim, "[[say:still here]]").answer == "still here"
    assert prompts(host, victim) == [*before, "[[say:still here]]"]
    assert set(before) == {"[[say:still here]]"}


@pytest.mark.parametrize("name", TRICKS)
def test_a_prompt_of_tmux_words_arrives_as_written_and_does_nothing(host, victim, name) -> None:
    canary = host.kit.root / f"canary-prompt-{name}"
    text = TRICKS[name].replace("CANARY", str(canary))
    session = host.session()
    assert host.run(session, text).status == "completed"
    heard = prompts(host, session)
    assert len(heard) == 1
    assert text in heard[0] if "pasted_content" in heard[0] else heard[0] == text
    untouched(host, victim, canary)
    session.close()


@pytest.mark.parametrize("name", TRICKS)
def test_a_model_that_says_tmux_words_and_sets_them_as_title_does_nothing(host, victim, name) -> None:
    canary = host.kit.cwd / "CANARY"
    session = host.session()
    assert TRICKS[name] in host.run(session, f"[[script:{name}]]").answer
    assert host.run(session, "[[say:and on]]").answer == "and on"
    untouched(host, victim, canary)
    session.close()


@pytest.mark.parametrize("name", [name for name in TRICKS if "/" not in TRICKS[name]])
def test_a_folder_of_tmux_words_is_where_the_cli_works(host, victim, name) -> None:
    folder = host.kit.root / TRICKS[name]
    folder.mkdir()
    assert host.runtime is not None
    session = host.runtime.session("claude-code", cwd=folder)
    assert host.run(session, "[[say:here]]").answer == "here"
    where = until(lambda: Path(f"/proc/{host.cli(session).pid}/cwd").resolve(), within_s=WAIT_S)
    assert where == folder
    untouched(host, victim, folder / "CANARY")
    assert not (host.kit.cwd / "CANARY").exists()
    session.close()
