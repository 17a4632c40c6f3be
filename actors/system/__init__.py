"""The actor system on pykka: dispatchers, supervision, mailboxes, timers, tracing."""
