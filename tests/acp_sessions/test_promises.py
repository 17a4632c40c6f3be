"""The promises of a session over the Agent Client Protocol, on the scripted agent."""

from acp_promises import *  # noqa: F403 - the tests that every agent is put to
