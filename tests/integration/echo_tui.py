"""A stand-in for a CLI's TUI: raw mode, bracketed paste on, and every byte that it reads goes to a file.

Environment: ECHO_LOG (bytes read), ECHO_META (JSON about itself, written when ready), ECHO_SCREEN (a file whose text
it paints), ECHO_TITLE, ECHO_STUBBORN=1 (ignores SIGHUP and SIGTERM), ECHO_CHILD=1 (starts a child that left its
session).
"""

import json
import os
import signal
import subprocess
import sys
import tty
from pathlib import Path

if os.environ.get("ECHO_STUBBORN"):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = 0
if os.environ.get("ECHO_CHILD"):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True).pid
tty.setraw(0)
out = os.fsencode("\x1b[?2004h\x1b[2J\x1b[H")
if title := os.environ.get("ECHO_TITLE"):
    out += b"\x1b]2;" + os.fsencode(title) + b"\x07"
if screen := os.environ.get("ECHO_SCREEN"):
    out += Path(screen).read_bytes()
os.write(1, out)
log = os.open(os.environ["ECHO_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
meta = {
    "argv": [os.fsencode(a).hex() for a in sys.argv],
    "cwd": str(Path.cwd()),
    "env": dict(os.environ),
    "pid": os.getpid(),
    "child": child,
}
new = Path(os.environ["ECHO_META"] + ".new")
new.write_text(json.dumps(meta))
new.rename(os.environ["ECHO_META"])
while data := os.read(0, 65536):
    os.write(log, data)
    if data == b"\x04":
        sys.exit(7)
