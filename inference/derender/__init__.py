"""From token ids to what a tenant reads: coupled answers, the stateless /derender calls, and a node's own text and derender modes.

All three are built on `choice.Choice` (ids to text, stop strings, endings) and, for chats, `chat_choice.ChatChoice` (parsers, logprobs).
"""

from inference.derender.answers import Answer, as_chunks, cached_tokens
from inference.derender.chat_answer import ChatAnswer
from inference.derender.chunk import derender_chat_chunk, derender_completion_chunk
from inference.derender.completion_answer import CompletionAnswer
from inference.derender.session import Session, open_session
from inference.derender.whole import derender_chat, derender_completion
from inference.derender.writer import TextWriter, text_writer

__all__ = [
    "Answer",
    "ChatAnswer",
    "CompletionAnswer",
    "Session",
    "TextWriter",
    "as_chunks",
    "cached_tokens",
    "derender_chat",
    "derender_chat_chunk",
    "derender_completion",
    "derender_completion_chunk",
    "open_session",
    "text_writer",
]
