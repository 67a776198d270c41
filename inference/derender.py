"""Derender."""

from __future__ import annotations

from inference.answers import Answer as Answer
from inference.chat_answer import ChatAnswer as ChatAnswer
from inference.completion_answer import CompletionAnswer as CompletionAnswer
