// The page's own data, by session. Every failure becomes an Error whose message can be shown.

const NOT_REACHED = "The server cannot be reached. Is it running?";

export class Refused extends Error {
    constructor(message, { status = 0, code = null, param = null } = {}) {
        super(message);
        Object.assign(this, { status, code, param });
    }
}

export const get = (url, query) => ask(`${url}?${new URLSearchParams(query)}`, { method: "GET" });

export function post(url, body) {
    const token = document.querySelector('meta[name="csrf-token"]').content;
    const headers = { "Content-Type": "application/json", "X-CSRFToken": token };
    return ask(url, { method: "POST", headers, body: JSON.stringify(body) });
}

async function ask(url, init) {
    let response;
    try {
        response = await fetch(url, { ...init, credentials: "same-origin" });
    } catch {
        throw new Refused(NOT_REACHED);
    }
    if (!response.headers.get("content-type")?.includes("json")) {
        throw new Refused("This page is out of date. Reload it.", { status: response.status });
    }
    const answer = await response.json();
    if (!response.ok) {
        throw new Refused(answer.error.message, { status: response.status, ...answer.error });
    }
    return answer;
}

// What went wrong and what to do next.
export function inWords(error) {
    switch (error.code) {
        case "no_node":
            return `${error.message} The model is being started or restarted: try again in a few seconds.`;
        case "overloaded":
            return `${error.message} Too many requests wait already: try again in a moment.`;
        case "invalid_api_key":
            return "This key has stopped working: it was revoked, or it has expired. Choose another.";
        case "insufficient_quota":
            return `${error.message} Raise the limit in the admin, or wait for the next period.`;
        default:
            return error.param && !error.message.includes(error.param) ? `${error.param}: ${error.message}` : error.message;
    }
}
