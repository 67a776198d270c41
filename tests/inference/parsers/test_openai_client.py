"""OpenAI's own client, unchanged, puts the deltas together: its accumulator and its events for streamed tool calls."""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins
from openai import pydantic_function_tool
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel

from inference.parsers import ParsedDelta, finish_reason
from tests.inference.parsers.reading import CALL, P1, chunkings, deltas, ids_of, parser


class get_weather(BaseModel):
    city: str


TEXT = "think</think>Sure. " + CALL + CALL.replace("Paris", "København")


def without_nulls(value: Any) -> Any:
    """As the coupled stream writes it: the client takes a null `type` for a value."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


def chunk(delta: dict[str, Any], finish: str | None = None) -> ChatCompletionChunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return ChatCompletionChunk.model_validate(
        {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    )


def wire(delta: ParsedDelta) -> dict[str, Any]:
    calls = without_nulls(to_builtins(delta.tool_calls))
    return without_nulls({"content": delta.content, "reasoning": delta.reasoning, "tool_calls": calls if calls else None})


def test_the_client_assembles_any_chunking() -> None:
    for pieces in chunkings(ids_of(TEXT)).values():
        state = ChatCompletionStreamState(input_tools=[pydantic_function_tool(get_weather)])
        reader = parser(prompt=P1)
        made = [wire(delta) for delta in deltas(reader, pieces)]
        chunks = [chunk({"role": "assistant", "content": ""}), *map(chunk, made)]
        chunks.append(chunk({}, finish_reason("stop", called=True, tool_choice="auto")))
        events = [event for each in chunks for event in state.handle_chunk(each)]

        choice = state.get_final_completion().choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Sure. "
        calls = choice.message.tool_calls or []
        assert [call.id for call in calls] == reader.tool_call_ids
        assert [call.function.parsed_arguments for call in calls] == [get_weather(city="Paris"), get_weather(city="København")]

        done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
        assert [(event.index, json.loads(event.arguments)["city"]) for event in done] == [(0, "Paris"), (1, "København")]
        grown = "".join(
            event.arguments_delta for event in events if event.type == "tool_calls.function.arguments.delta" and event.index == 1
        )
        assert grown == done[1].arguments
