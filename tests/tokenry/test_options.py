from __future__ import annotations

from argparse import ArgumentParser

import pytest

from tokenry.options import OptionError, ServeOptions, add_arguments, from_arguments


def parse(*argv: str, env: dict[str, str] | None = None) -> ServeOptions:
    parser = ArgumentParser()
    add_arguments(parser)
    return from_arguments(vars(parser.parse_args(argv)), env or {})


def test_flags_win_over_the_environment():
    env = {"TOKENRY_PORT": "9000", "TOKENRY_MAX_LOGPROBS": "5"}
    options = parse("--port", "9001", env=env)
    assert (options.port, options.max_logprobs) == (9001, 5)


def test_a_repeated_flag_keeps_its_order():
    assert parse("--served-model-name", "a", "--served-model-name", "b").names == ("a", "b")


def test_zero_is_a_value():
    assert parse("--max-logprobs", "0").max_logprobs == 0
    assert parse("--port", "0").port == 0


def test_options_survive_the_environment():
    options = parse("--role", "platform", "--node", "http://a", "--node", "http://b", "--max-logprobs", "-1",
                    "--default-chat-template-kwargs", '{"a": {"b": false}}', "--return-tokens-as-token-ids")
    assert ServeOptions.from_env(options.to_env()) == options


@pytest.mark.parametrize(("argv", "env", "word"), [
    ((), {"TOKENRY_PORT": "x"}, "TOKENRY_PORT"),
    ((), {"TOKENRY_ROLE": "king"}, "TOKENRY_ROLE"),
    ((), {"TOKENRY_TOKENS_ONLY": "maybe"}, "TOKENRY_TOKENS_ONLY"),
    (("--max-model-len", "0"), {}, "--max-model-len"),
    (("--max-logprobs", "-2"), {}, "--max-logprobs"),
    (("--role", "platform"), {}, "--node"),
    (("--role", "generate", "--node", "http://a"), {}, "--node"),
    (("--enable-auto-tool-choice",), {}, "--tool-call-parser"),
    (("--default-chat-template-kwargs", "[1]"), {}, "JSON object"),
    (("--default-chat-template-kwargs", "{"), {}, "JSON object"),
])  # fmt: skip
def test_a_wrong_setting_is_named(argv, env, word):
    with pytest.raises(OptionError, match=word):
        parse(*argv, env=env)
