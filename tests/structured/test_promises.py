"""The promises of the structured transport, on the scripted CLI."""

from structured_promises import *  # noqa: F403 - the tests that both CLIs are put to
