"""The playground in a real browser, on the scripted engine: every token, every switch, and every way that things go wrong."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Opens, Stage
from tests.browser.visit import Playground
from tests.conftest import Scene
from tests.world import World

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]


def entered(opens: Opens, stage: Stage, name: str = "dora", **look: object) -> Playground:
    return Playground(opens(stage.platform, **look).login(name))


def written(playground: Playground, way: str) -> str:
    playground.open("The request that results")
    playground.panel().get_by_role("tab", name=way).click()
    return playground.part("written").text_content() or ""


# Tokens


def test_a_strangers_path(opens: Opens, scripted: Scene) -> None:
    """From the page that `make serve` names to the first tinted token, with what it prints: two clicks."""
    demo = json.loads((scripted.platform.home / "demo.json").read_text())
    visit = opens(scripted.platform)
    page = visit.login(demo["username"], demo["password"])  # one click
    page.get_by_role("button", name="What is the capital of France?").click()
    expect(page.locator(".turn.assistant .token").first).to_have_class(re.compile(r"token p\d"))
    visit.shot("first-token")


def test_the_text_is_the_text_whatever_the_tokens(opens: Opens, stage: Stage) -> None:
    playground = entered(opens, stage)
    thought, said = "think of ünï, at some length", "Hello,\nworld! 🙂 日本"
    playground.answer_with(f"<think>{thought}</think>{said}")
    playground.ask()
    playground.until_answered()
    answer = playground.answer()
    assert answer.locator(".reasoning .tokens").text_content() == thought
    assert answer.locator(".content .tokens").text_content() == said
    assert playground.tokens().count() == len(f"<think>{thought}</think>{said}".encode()) + 1
    marks = answer.locator(".content [data-mark]").evaluate_all("marks => marks.map((mark) => mark.dataset.mark).join('')")
    assert marks.startswith("</think>↵")
    assert marks.endswith("<|im_end|>")
    tints = {playground.tokens().nth(place).get_attribute("class") for place in range(8, 15)}
    assert {"token p9", "token p0", "token p5"} <= tints


def test_a_tokens_card_by_mouse(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    playground = Playground(visit.login("dora"))
    playground.answer_with("</think>abc")
    playground.open("Settings")
    playground.ask()
    playground.until_answered()
    card = visit.page.get_by_role("tooltip")
    playground.tokens().filter(has_text="b").hover()
    expect(card).to_contain_text("62")  # its byte, in hexadecimal
    expect(card).to_contain_text("98")  # its id
    expect(card).to_contain_text("Probability")
    expect(card.locator("tbody tr")).to_have_count(4)
    expect(card.locator("tbody tr.taken")).to_contain_text("98")
    expect(card.locator("tbody tr").nth(1)).to_contain_text("104")  # h, which only the vocabulary tells
    expect(card.locator("tbody tr").nth(3)).to_contain_text("part of a character")
    visit.shot("card")
    visit.page.get_by_role("heading", name="A", exact=True).hover()
    expect(card).to_be_hidden()


def test_tokens_by_keyboard(opens: Opens, stage: Stage) -> None:
    playground = entered(opens, stage)
    playground.answer_with("</think>abc")
    playground.ask()
    playground.until_answered()
    page = playground.page
    assert playground.answer().locator('.token[tabindex="0"]').count() == 1
    playground.answer().locator('.token[tabindex="0"]').focus()
    for _ in range(len("</think>")):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip")).to_contain_text("97")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tooltip")).to_contain_text("98")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(":focus")).to_have_text("a")
    page.keyboard.press("Escape")
    expect(page.get_by_role("tooltip")).to_be_hidden()


def test_reasoning_and_tool_calls_have_blocks_of_their_own(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    playground = Playground(visit.login("dora"))
    call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    playground.answer_with(f"<think>Look it up.</think>One moment.{call}")
    playground.part("tools").fill(json.dumps(TOOLS))
    playground.ask("Weather in Paris?")
    playground.until_answered()
    answer = playground.answer()
    assert answer.locator(".reasoning .tokens").text_content() == "Look it up."
    assert answer.locator(".content .tokens").text_content() == "One moment."
    expect(answer.locator(".tool pre")).to_have_text('weather({"city": "Paris"})')
    expect(answer).to_contain_text("Ended with a tool call.")
    assert "tool_calls" in written(playground, "JSON")  # the next request carries it on
    visit.shot("blocks")


# Settings, and the request that results


def test_the_request_that_results(opens: Opens, stage: Stage) -> None:
    playground = entered(opens, stage)
    playground.open("Settings")
    playground.field("return_tokens_as_token_ids").locator("select").select_option("yes")
    playground.field("stream_options.include_usage").locator("select").select_option("no")
    playground.field("temperature").locator("input").fill("0")
    playground.field("stop").locator("input").fill('["\\n", "it\'s"]')
    playground.part("kwargs").fill('{"thinking": false, "depth": null}')
    playground.page.get_by_label("Message", exact=True).fill("It's “quoted”\n")
    playground.open("The request that results")
    playground.part("copy").click()
    expect(playground.part("copy")).to_have_text("Copied")
    assert json.loads(playground.page.evaluate("navigator.clipboard.readText()"))["temperature"] == 0
    request = json.loads(written(playground, "JSON"))
    assert request == {
        "model": "m", "messages": [{"role": "user", "content": "It's “quoted”\n"}], "stream": True, "logprobs": True, "top_logprobs": 5,
        "return_tokens_as_token_ids": True, "return_token_ids": True, "stream_options": {"include_usage": False}, "temperature": 0,
        "stop": ["\n", "it's"], "chat_template_kwargs": {"thinking": False, "depth": None},
    }
    curl = written(playground, "curl")
    assert json.loads(curl.partition("-d '")[2].removesuffix("'").replace("'\\''", "'")) == request
    python = compile(written(playground, "Python"), "written", "exec")
    assert python
    text = written(playground, "Python")
    assert "extra_body={" in text
    assert "temperature=0," in text
    assert '"depth": None' in text


def test_what_is_not_json_yet_is_told_and_not_sent(opens: Opens, stage: Stage) -> None:
    playground = entered(opens, stage)
    playground.open("Settings")
    playground.part("tools").fill("[{")
    expect(playground.part("problem")).to_contain_text("tools: must be a JSON list")
    playground.part("tools").fill("")
    playground.field("max_tokens").locator("input").fill("1.5")
    expect(playground.part("problem")).to_contain_text("max_tokens: must be a whole number")
    playground.ask()
    expect(playground.page.locator(".turn")).to_have_count(0)


def test_a_flag_in_its_three_states(opens: Opens, stage: Stage) -> None:
    """Globex inherits; a request says yes; a request says no to what its tenant says."""
    playground = entered(opens, stage, "stan")
    playground.answer_with("</think>abc")
    flag = playground.field("return_tokens_as_token_ids")
    card = playground.page.get_by_role("tooltip")
    expect(playground.field("temperature")).to_contain_text("inherits 0.3 (the tenant)")
    for state, named in (("inherit", False), ("yes", True)):
        playground.open("Settings")
        flag.locator("select").select_option(state)
        playground.ask()
        playground.until_answered()
        playground.tokens().filter(has_text="b").hover()
        expect(card).to_contain_text("98")
        assert ("token_id:98" in (card.text_content() or "")) is named
        expect(card.locator("tbody tr").nth(1)).to_contain_text("h")


def test_two_configurations_side_by_side(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    playground = Playground(visit.login("dora"))
    sockets: list[str] = []
    visit.page.on("websocket", lambda socket: sockets.append(socket.url))
    playground.answer_with("</think>from the first", wait_ms=5)
    visit.page.get_by_role("button", name="Compare two").click()
    expect(playground.panel("B")).to_be_visible()
    playground.answer_with("</think>from the second", wait_ms=5, panel="B")
    playground.ask()
    playground.until_answered("A")
    playground.until_answered("B")
    assert playground.answer("A").locator(".content").text_content() == "from the first"
    assert playground.answer("B").locator(".content").text_content() == "from the second"
    for panel in "AB":
        expect(playground.part("timing", panel)).to_have_text(re.compile(r"first token [\d.]+ s · [\d.]+ tokens/s · \d+ tokens"))
    assert len(sockets) == 1
    visit.shot("two")
    visit.page.get_by_role("button", name="Compare two").click()
    expect(playground.panel("B")).to_have_count(0)


def test_a_conversation_goes_on_and_starts_afresh(opens: Opens, stage: Stage) -> None:
    playground = entered(opens, stage)
    playground.answer_with("</think>One.")
    for text in ("First?", "Second?"):
        playground.ask(text)
        playground.until_answered()
    messages = json.loads(written(playground, "JSON"))["messages"]
    assert [message["content"] for message in messages] == ["First?", "One.", "Second?", "One."]
    playground.page.get_by_role("button", name="New chat").click()
    assert json.loads(written(playground, "JSON"))["messages"] == []
    expect(playground.page.get_by_text("Ask something")).to_be_visible()


# Stopping, and what goes wrong


@pytest.mark.parametrize("by", ["button", "Escape"])
def test_stop(opens: Opens, stage: Stage, by: str) -> None:
    playground = entered(opens, stage)
    playground.answer_with("</think>" + "x" * 200, wait_ms=40)
    playground.ask()
    expect(playground.tokens().nth(10)).to_be_attached()
    if by == "button":
        playground.page.get_by_role("button", name="Stop").click()
    else:
        playground.page.keyboard.press("Escape")
    expect(playground.answer()).to_contain_text("Stopped.")
    assert playground.tokens().count() < 200
    playground.answer_with("</think>again")
    playground.ask()
    playground.until_answered()
    expect(playground.answer()).to_contain_text("again")


def test_a_refused_request_says_which_field(opens: Opens, stage: Stage) -> None:
    playground = entered(opens, stage)
    playground.open("Settings")
    playground.field("temperature").locator("input").fill("9")
    playground.ask("Hot?")
    expect(playground.answer().locator(".end.bad")).to_contain_text("temperature")
    expect(playground.page.get_by_label("Message", exact=True)).to_have_value("Hot?")


def test_an_old_ticket_is_replaced(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    visit.expects("WebSocket connection to .* failed")
    playground = Playground(visit.login("dora"))
    sold: list[str] = []

    def sell(route: Route) -> None:
        sold.append(route.request.url)
        if len(sold) == 1:
            route.fulfill(json={"ticket": "too-old", "expires_in": 60})
        else:
            route.continue_()

    visit.page.route("**/playground/ticket", sell)
    playground.answer_with("</think>here")
    playground.ask()
    playground.until_answered()
    expect(playground.answer()).to_contain_text("here")
    assert len(sold) == 2


def test_a_lost_connection_comes_back(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    visit.page.add_init_script(
        "const Own = WebSocket; window.opened = [];"
        "window.WebSocket = class extends Own { constructor(...given) { super(...given); window.opened.push(this); } };")
    playground = Playground(visit.login("dora"))
    playground.answer_with("</think>" + "x" * 300, wait_ms=40)
    playground.ask()
    expect(playground.tokens().nth(5)).to_be_attached()
    visit.page.evaluate("window.opened[0].close(4000)")
    expect(playground.answer().locator(".end.bad")).to_contain_text("The connection was lost")
    expect(visit.page.locator("#connection")).to_have_text("Connected")
    assert visit.page.evaluate("window.opened.length") == 2
    playground.answer_with("</think>back")
    playground.ask()
    playground.until_answered()
    expect(playground.answer()).to_contain_text("back")


def test_no_node_is_told_in_words(opens: Opens, world: World) -> None:
    node = world.scripted_node("short-lived")
    platform = world.scripted_platform("left-alone", node)
    demo = json.loads((platform.home / "demo.json").read_text())
    visit = opens(platform)
    page = visit.login(demo["username"], demo["password"])
    node.stop()
    page.get_by_role("button", name="Name three rivers of Europe.").click()
    expect(page.locator(".end.bad")).to_contain_text("No node can take the request now. The model is being started or restarted")
    page.goto("/admin/")
    expect(page.get_by_text(f"Node {node.url} is down")).to_be_visible()
    visit.shot("node-down")


def test_a_session_that_ended_leads_to_the_login(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    visit.expects("status of 401")
    playground = Playground(visit.login("dora"))
    visit.context.clear_cookies(name="sessionid")
    playground.ask()
    expect(visit.page.get_by_role("link", name="Log in again")).to_be_visible()


# Empty states


def test_a_viewer_is_told_why_it_cannot(opens: Opens, stage: Stage) -> None:
    playground = entered(opens, stage, "vera")
    expect(playground.page.get_by_role("alert").filter(has_text="you are a viewer")).to_be_visible()
    expect(playground.page.get_by_role("button", name="Send")).to_be_disabled()


def test_a_key_is_remembered_and_tenants_can_be_chosen(opens: Opens, stage: Stage) -> None:
    visit = opens(stage.platform)
    page: Page = visit.login("rita")
    page.locator("#tenant").select_option("Globex")
    expect(page.locator("#key option")).to_have_count(1)
    page.reload()
    expect(page.locator("#tenant")).to_have_value(stage.globex.id)
