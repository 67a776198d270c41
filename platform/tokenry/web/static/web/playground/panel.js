// One configuration and its conversation. Two of them side by side get the same messages.

import { Answer } from "./answer.js";
import { byId, el, options } from "./dom.js";
import * as written from "./request.js";
import { get, inWords } from "./server.js";
import { Settings } from "./settings.js";

const WAYS = { JSON: written.asJSON, curl: written.asCurl, Python: written.asPython };
const EXAMPLES = ["What is the capital of France?", "Name three rivers of Europe.", "Write a haiku about tokens."];
const ENDS = { length: "Ended: the most tokens were reached.", tool_calls: "Ended with a tool call.", content_filter: "Ended by a filter." };
const seconds = (milliseconds) => `${(milliseconds / 1000).toFixed(2)} s`;

export class Panel {
    // bench: {setup, connection, card, key(), draft(), ask(text), changed()}
    constructor(name, bench) {
        this.name = name;
        this.bench = bench;
        this.root = byId("panel-template").content.cloneNode(true).firstElementChild;
        this.part = (part) => this.root.querySelector(`[data-part="${part}"]`);
        this.root.setAttribute("aria-label", `Configuration ${name}`);
        this.root.querySelector("h2").textContent = name;
        this.log = this.part("log");
        this.log.setAttribute("aria-label", `Conversation ${name}`);
        this.way = "JSON";
        this.running = null;
        this.count = 0;
        this.settings = new Settings(this.root, bench.setup, () => this.write());
        this.part("model").addEventListener("change", () => this.inherit());
        this.part("copy").addEventListener("click", () => this.copy());
        this.tabs();
        bench.card.watch(this.log);
        this.fresh();
    }

    // The settings

    tabs() {
        const list = this.part("tabs");
        const choose = (way) => {
            this.way = way;
            [...list.children].forEach((tab) => {
                tab.setAttribute("aria-selected", String(tab.textContent === way));
                tab.tabIndex = tab.textContent === way ? 0 : -1;
            });
            this.write();
        };
        list.append(...Object.keys(WAYS).map((way) => el("button", { type: "button", role: "tab", textContent: way, onclick: () => choose(way) })));
        list.addEventListener("keydown", (event) => {
            const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
            if (by) {
                const ways = Object.keys(WAYS);
                choose(ways[(ways.indexOf(this.way) + by + ways.length) % ways.length]);
                list.querySelector('[aria-selected="true"]').focus();
            }
        });
        this.part("written").setAttribute("aria-label", `The request of ${this.name}`);
        choose(this.way);
    }

    // Browsers hand out the clipboard on https and localhost only; elsewhere the text is selected, and the keyboard copies it.
    async copy() {
        const written = this.part("written");
        if (navigator.clipboard) {
            await navigator.clipboard.writeText(written.textContent);
            this.part("copy").textContent = "Copied";
            setTimeout(() => { this.part("copy").textContent = "Copy"; }, 1500);
        } else {
            getSelection().selectAllChildren(written);
        }
    }

    offer(models) {
        const model = this.part("model");
        options(model, models.map((name) => [name, name]), models.includes(model.value) ? model.value : models[0]);
        return this.inherit();
    }

    async inherit() {
        this.write();
        const key = this.bench.key();
        const model = this.part("model").value;
        if (!key || !model) {
            return;
        }
        try {
            this.settings.inherits(await get(this.bench.setup.urls.defaults, { key, model }));
        } catch (error) {
            this.complain(inWords(error));
        }
    }

    // The request as it stands, with what is being typed as its last message. Returns it, or null where something cannot be.
    write(messages = this.messages) {
        const draft = this.bench.draft();
        try {
            const request = written.build(this.settings.read(), draft ? [...messages, { role: "user", content: draft }] : messages);
            this.part("written").textContent = WAYS[this.way](request);
            this.complain(null);
            return request;
        } catch (error) {
            this.part("written").textContent = error.message;
            this.complain(error.message);
            return null;
        }
    }

    complain(words) {
        this.part("problem").hidden = !words;
        this.part("problem").textContent = words ?? "";
    }

    // The conversation

    fresh() {
        this.messages = [];
        const examples = EXAMPLES.map((text) => el("button", { type: "button", textContent: text, onclick: () => this.bench.ask(text) }));
        const hint = el("div", { className: "empty" },
            el("strong", { textContent: "Ask something" }), "Write a message below, or start with one of these:",
            el("div", { className: "examples" }, ...examples));
        this.log.replaceChildren(hint);
        this.part("timing").textContent = "";
        this.write();
    }

    turn(from, ...content) {
        this.log.querySelector(".empty")?.remove();
        const turn = el("div", { className: `turn ${from}` }, el("div", { className: "from", textContent: from === "user" ? "You" : this.part("model").value }), ...content);
        this.log.append(turn);
        this.log.scrollTop = this.log.scrollHeight;
        return turn;
    }

    async send(text) {
        const request = this.write([...this.messages, { role: "user", content: text }]);
        if (!request) {
            return;
        }
        this.turn("user", el("div", { className: "said", textContent: text }));
        const root = el("div", { className: "waiting" });
        const turn = this.turn("assistant", root);
        turn.scrollIntoView({ block: "nearest" }); // unfolded settings may have pushed the log off the screen
        const run = this.running = {
            id: `${this.name}-${++this.count}`, text, root, turn, answer: new Answer(root, request.model), begun: 0, first: null, last: null,
        };
        const handlers = {
            chunk: (chunk) => this.hear(run, chunk), done: (frame) => this.done(run, frame), failed: (error) => this.failed(run, error),
        };
        this.bench.changed();
        try {
            await this.bench.connection.open();
            run.begun = performance.now();
            await this.bench.connection.create(run.id, request, handlers);
        } catch (error) {
            this.failed(run, error);
        }
    }

    stop() {
        if (this.running) {
            this.bench.connection.cancel(this.running.id);
        }
    }

    hear(run, chunk) {
        const follow = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
        if (run.answer.feed(chunk)) {
            run.last = performance.now();
            run.first ??= run.last;
            this.time(run, run.answer.tokens);
        }
        if (follow) {
            this.log.scrollTop = this.log.scrollHeight;
        }
    }

    done(run, frame) {
        this.messages.push({ role: "user", content: run.text }, run.answer.message());
        const reason = frame.cancelled ? "Stopped." : ENDS[run.answer.finishReason()];
        this.time(run, frame.usage?.completion_tokens ?? run.answer.tokens);
        this.end(run, reason ?? (run.first === null ? "The answer is empty." : null), "");
    }

    failed(run, error) {
        this.end(run, inWords(error), "bad");
        this.bench.refused(run.text, error);
    }

    end(run, words, tone) {
        run.root.classList.remove("waiting");
        if (words) {
            run.turn.append(el("div", { className: `end ${tone}`, textContent: words }));
        }
        this.running = null;
        this.bench.changed();
        this.write();
        this.log.scrollTop = this.log.scrollHeight;
    }

    // Tokens per second after the first one: what came before it is the first number.
    time(run, tokens) {
        if (run.first === null) {
            return;
        }
        const span = run.last - run.first;
        const rate = tokens > 1 && span > 0 ? ` · ${((tokens - 1) / (span / 1000)).toFixed(1)} tokens/s` : "";
        this.part("timing").textContent = `first token ${seconds(run.first - run.begun)}${rate} · ${tokens} tokens`;
    }
}
