// Tokens as elements: each tinted by its probability, and all of them together exactly the text.

import { el } from "./dom.js";

const PLACEHOLDER = /^token_id:(\d+)$/;
const known = new WeakMap(); // element -> token

export const tokenOf = (element) => known.get(element);
export const probability = (logprob) => Math.exp(logprob);
export const placeholderId = (name) => { const match = PLACEHOLDER.exec(name); return match ? Number(match[1]) : null; };

// The tokens of a chunk's choice, ids beside logprobs where both came.
export function tokensOf(choice, model) {
    const entries = choice.logprobs?.content ?? [];
    const ids = choice.token_ids ?? [];
    return entries.map((entry, index) => {
        const named = placeholderId(entry.token);
        const id = ids.length === entries.length ? ids[index] : named;
        return { ...entry, id, model, text: named === null ? entry.token : decoded(entry.bytes, entry.token) };
    });
}

// A placeholder says nothing of the text; the token's own bytes do, unless they are the placeholder's.
function decoded(bytes, name) {
    const text = bytes ? new TextDecoder().decode(new Uint8Array(bytes)) : "";
    return text === name ? "" : text;
}

// Lay tokens over a text, which may lack some of theirs: special tokens and a parser's markup are left out of it, and a character may take
// several tokens. Returns what was laid down; its text content is the text, to the letter.
export function laid(text, tokens) {
    if (!tokens.length) {
        return text ? [document.createTextNode(text)] : [];
    }
    let from = -offset(text, tokens);
    return tokens.map((token, index) => {
        const begin = Math.max(0, from);
        from += token.text.length;
        const last = index === tokens.length - 1;
        return tokenElement(token, text.slice(begin, last ? text.length : Math.max(begin, from)));
    });
}

// How many of the tokens it takes to get to the end of the text.
export function reach(text, tokens) {
    let left = offset(text, tokens) + text.length;
    let count = 0;
    while (left > 0 && count < tokens.length) {
        left -= tokens[count++].text.length;
    }
    return count;
}

// How much the tokens say before the text begins: where a token begins with it, else anywhere; nothing where they do not say it in one piece.
function offset(text, tokens) {
    const said = tokens.map((token) => token.text).join("");
    let start = 0;
    for (const token of tokens) {
        if (said.startsWith(text, start)) {
            return start;
        }
        start += token.text.length;
    }
    return Math.max(0, said.indexOf(text));
}

export function tokenElement(token, shown) {
    const step = Math.min(9, Math.floor(probability(token.logprob) * 10));
    const element = el("span", { className: `token p${step}`, textContent: shown, tabIndex: -1 });
    const mark = shown === "" ? token.text || "◌" : /^\n+$/.test(shown) ? "↵" : "";
    if (mark) {
        element.dataset.mark = mark;
    }
    known.set(element, token);
    return element;
}

// One stop for the Tab key in each answer; the arrows go on from there.
export function step(element, by) {
    const all = [...element.closest(".log").querySelectorAll(".token")];
    const next = all[all.indexOf(element) + by];
    if (next) {
        element.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
    }
}
