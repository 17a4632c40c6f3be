"""The model APIs that are built in: no CLI of theirs runs, so they are listed apart as well."""

from __future__ import annotations

from lastword.actors.core.service import ApiAdapter
from lastword.transports.providers.anthropic import AnthropicAdapter
from lastword.transports.providers.openai import OpenAiAdapter
from lastword.transports.providers.openai_chat import OpenAiChatAdapter

SERVICES: tuple[ApiAdapter, ...] = (AnthropicAdapter(), OpenAiAdapter(), OpenAiChatAdapter())

__all__ = ["SERVICES"]
