// The card beside a token: how likely it was, its id and bytes, and what else it could have been.

import { byId, el } from "./dom.js";
import { placeholderId, probability, step, tokenOf } from "./tokens.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 };
const percent = new Intl.NumberFormat("en", { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 2 });
const VISIBLE = { " ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍" };

export class Card {
    // look: (model, {texts, ids}) => Promise of {ids: {text: [id]}, texts: {id: {text, bytes}}}
    constructor(look) {
        this.look = look;
        this.root = byId("card");
        this.seen = new Map();
        this.shown = null;
        document.addEventListener("mouseover", (event) => this.aim(event.target));
    }

    watch(log) {
        log.addEventListener("focusin", (event) => this.aim(event.target));
        log.addEventListener("focusout", () => this.hide());
        log.addEventListener("scroll", () => this.shown && this.place(this.shown), { passive: true });
        log.addEventListener("keydown", (event) => {
            if (event.target.matches(".token") && event.key in STEPS) {
                event.preventDefault();
                step(event.target, STEPS[event.key]);
            }
        });
    }

    aim(target) {
        const token = tokenOf(target);
        if (token && target !== this.shown) {
            this.show(target, token);
        } else if (!token && this.shown !== document.activeElement) { // of a focused one it stays: the page may move under a resting mouse
            this.hide();
        }
    }

    show(element, token) {
        this.hide();
        this.shown = element;
        element.classList.add("shown");
        element.setAttribute("aria-describedby", "card");
        this.fill(token);
        this.root.hidden = false;
        this.place(element);
        this.complete(token, element);
    }

    hide() {
        this.shown?.classList.remove("shown");
        this.shown?.removeAttribute("aria-describedby");
        this.shown = null;
        this.root.hidden = true;
    }

    place(element) {
        const box = element.getClientRects()[0] ?? element.getBoundingClientRect();
        const width = this.root.offsetWidth;
        const below = box.bottom + 6 + this.root.offsetHeight < innerHeight;
        const top = below ? box.bottom + 6 : Math.max(6, box.top - 6 - this.root.offsetHeight);
        this.root.style.left = `${scrollX + Math.max(8, Math.min(box.left, document.documentElement.clientWidth - width - 8))}px`;
        this.root.style.top = `${scrollY + top}px`;
    }

    // Candidates come with a text or with an id. The other half is asked for once, and then remembered.
    async complete(token, element) {
        const names = token.top_logprobs.map((candidate) => candidate.token);
        const missing = names.filter((name) => !this.seen.has(this.about(token, name)));
        if (!missing.length) {
            return;
        }
        const ids = missing.map(placeholderId).filter((id) => id !== null);
        const texts = missing.filter((name) => placeholderId(name) === null);
        try {
            const found = await this.look(token.model, { texts, ids });
            texts.forEach((text) => this.seen.set(this.about(token, text), { text, ids: found.ids[text] }));
            ids.forEach((id) => this.seen.set(this.about(token, `token_id:${id}`), { ...found.texts[id], ids: [id] }));
        } catch {
            return; // the card stays as it is: without ids
        }
        if (this.shown === element) {
            this.fill(token);
            this.place(element);
        }
    }

    about(token, name) {
        return `${token.model}\n${name}`;
    }

    fill(token) {
        const facts = [
            ["Token", glyph(token.text)],
            ["Probability", `${percent.format(probability(token.logprob))} (logprob ${token.logprob.toFixed(4)})`],
            ["Id", token.id === null || token.id === undefined ? "not asked for: return_token_ids is no" : String(token.id)],
            ["Bytes", hex(token.bytes)],
        ];
        if (placeholderId(token.token) !== null) {
            facts.splice(1, 0, ["Named", token.token]);
        }
        const list = el("dl", {}, ...facts.flatMap(([name, value]) => [el("dt", { textContent: name }), el("dd", {}, value)]));
        this.root.replaceChildren(list, this.candidates(token));
    }

    candidates(token) {
        if (!token.top_logprobs.length) {
            return el("p", { textContent: "No candidates were asked for: set “Candidates per token” above 0." });
        }
        const head = el("tr", {}, ...["Candidate", "Probability", "Id"].map((text) => el("th", { textContent: text, scope: "col" })));
        const rows = token.top_logprobs.map((candidate) => this.row(token, candidate));
        return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
    }

    row(token, candidate) {
        const named = placeholderId(candidate.token);
        const more = this.seen.get(this.about(token, candidate.token));
        const taken = candidate.token === token.token && candidate.logprob === token.logprob;
        const likely = probability(candidate.logprob);
        const text = more?.text ?? (named === null ? candidate.token : "");
        const bytes = named === null ? candidate.bytes : more?.bytes;
        const ids = taken && token.id !== null && token.id !== undefined ? [token.id] : named === null ? more?.ids : [named];
        return el("tr", { className: taken ? "taken" : "" },
            el("td", {}, glyph(text), el("div", { className: "bytes", textContent: hex(bytes) })),
            el("td", {}, el("meter", { min: 0, max: 1, value: likely, "aria-hidden": "true" }), ` ${percent.format(likely)}`),
            el("td", { className: "number", textContent: idsInWords(ids) }));
    }
}

function idsInWords(ids) {
    if (!ids) {
        return "…";
    }
    return ids.length ? ids.slice(0, 3).join(" or ") : "part of a character";
}

function glyph(text) {
    const shown = text ? [...text].map((character) => VISIBLE[character] ?? character).join("") : "no text of its own";
    return el("span", { className: "glyph", textContent: shown });
}

const hex = (bytes) => (bytes?.length ? bytes.map((byte) => byte.toString(16).padStart(2, "0")).join(" ") : "none");
