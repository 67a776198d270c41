// An answer as it comes: reasoning, text and tool calls in blocks of their own, token by token.

import { el } from "./dom.js";
import { laid, reach, tokenElement, tokensOf } from "./tokens.js";

const TITLES = { reasoning: "Reasoning", content: "", tool: "Tool call" };

export class Answer {
    constructor(root, model) {
        this.root = root;
        this.model = model;
        this.choices = new Map();
        this.tokens = 0;
    }

    // True when the chunk brought anything that was generated.
    feed(chunk) {
        let news = false;
        for (const choice of chunk.choices) {
            const tokens = tokensOf(choice, this.model);
            this.tokens += choice.token_ids?.length ?? tokens.length;
            news = this.choice(choice.index).feed(choice, tokens) || news;
        }
        return news;
    }

    choice(index) {
        if (!this.choices.has(index)) {
            const root = el("div", { className: "choice" });
            if (index > 0) {
                root.append(el("div", { className: "from", textContent: `Choice ${index + 1}` }));
            }
            this.root.append(root);
            this.choices.set(index, new Choice(root));
        }
        return this.choices.get(index);
    }

    finishReason() {
        return this.choices.get(0)?.finish ?? null;
    }

    // The first choice, as the next request carries it on.
    message() {
        const { content = "", calls = [] } = this.choices.get(0) ?? {};
        const message = { role: "assistant", content };
        return calls.length ? { ...message, tool_calls: calls } : message;
    }
}

class Choice {
    constructor(root) {
        this.root = root;
        this.content = "";
        this.calls = [];
        this.finish = null;
        this.block = null;
        this.pending = []; // tokens whose text has not come yet: part of a character, or held back by a parser or a stop string
    }

    feed(choice, tokens) {
        const { content, reasoning, tool_calls: calls } = choice.delta;
        this.pending.push(...tokens);
        this.finish = choice.finish_reason ?? this.finish;
        this.content += content ?? "";
        if (reasoning) {
            this.text("reasoning", reasoning, Boolean(content || calls?.length));
        }
        if (content) {
            this.text("content", content, Boolean(calls?.length));
        }
        for (const call of calls ?? []) {
            this.call(call);
        }
        if (choice.finish_reason && this.pending.length) {
            this.text(this.block?.kind ?? "content", "", false);
        }
        return Boolean(content || reasoning || calls?.length || tokens.length || choice.token_ids?.length);
    }

    // `more`: another block follows in the same chunk, so that only the tokens of this text are taken.
    text(kind, text, more) {
        const tokens = this.pending.splice(0, more ? reach(text, this.pending) : Infinity);
        const block = this.enter(kind);
        if (kind === "tool") {
            block.tokens.append(...tokens.map((token) => tokenElement(token, token.text)));
        } else {
            block.tokens.append(...laid(text, tokens));
        }
        this.reachable();
    }

    call(delta) {
        const known = this.calls[delta.index];
        if (!known) {
            this.calls[delta.index] = { id: delta.id, type: "function", function: { name: delta.function.name ?? "", arguments: "" } };
            this.block = null;
        }
        const call = this.calls[delta.index];
        call.function.arguments += delta.function.arguments ?? "";
        this.text("tool", "", false);
        this.block.written.textContent = `${call.function.name}(${call.function.arguments})`;
    }

    enter(kind) {
        if (this.block?.kind === kind) {
            return this.block;
        }
        const tokens = el("div", { className: "tokens" });
        const written = el("pre", {});
        const title = TITLES[kind] ? [el("h3", { textContent: TITLES[kind] })] : [];
        const parts = kind === "tool" ? [written, el("h3", { textContent: "Tokens as they were generated" })] : [];
        this.root.append(el("div", { className: `${kind === "content" ? "" : "block"} ${kind}` }, ...title, ...parts, tokens));
        this.block = { kind, tokens, written };
        return this.block;
    }

    reachable() {
        if (!this.root.querySelector('.token[tabindex="0"]')) {
            const first = this.root.querySelector(".token");
            if (first) {
                first.tabIndex = 0;
            }
        }
    }
}
