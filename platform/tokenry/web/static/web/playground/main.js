// The playground: who acts as which key, one connection, and one or two panels on it.

import { Card } from "./card.js";
import { Connection } from "./connection.js";
import { byId, el, options } from "./dom.js";
import { Panel } from "./panel.js";
import { post } from "./server.js";

const setup = JSON.parse(byId("setup").textContent);
const prompt = byId("prompt");

const bench = {
    setup,
    key: () => byId("key").value,
    draft: () => prompt.value,
    ask,
    changed,
    refused,
    connection: new Connection(setup.socket, async () => (await post(setup.urls.ticket, { key: byId("key").value })).ticket, state),
    card: new Card((model, wanted) => post(setup.urls.tokens, { key: byId("key").value, model, ...wanted })),
};
let panels = [];

function start() {
    options(byId("tenant"), setup.tenants.map((tenant) => [String(tenant.id), tenant.name]), remembered("tenant"));
    byId("tenant-field").hidden = setup.tenants.length < 2;
    byId("tenant").addEventListener("change", chooseTenant);
    byId("key").addEventListener("change", chooseKey);
    byId("compare").addEventListener("click", compare);
    byId("fresh").addEventListener("click", () => { stop(); panels.forEach((panel) => panel.fresh()); prompt.focus(); });
    byId("stop").addEventListener("click", stop);
    byId("composer").addEventListener("submit", (event) => { event.preventDefault(); ask(prompt.value); });
    prompt.addEventListener("input", () => panels.forEach((panel) => panel.write()));
    prompt.addEventListener("keydown", enter);
    addEventListener("keydown", (event) => { if (event.key === "Escape") { bench.card.hide(); stop(); } });
    addEventListener("focus", () => panels.forEach((panel) => panel.inherit())); // somebody may have changed a default meanwhile
    addPanel("A");
    chooseTenant();
    prompt.focus();
}

// Who acts

function tenant() {
    return setup.tenants.find((item) => String(item.id) === byId("tenant").value);
}

function chooseTenant() {
    remember("tenant", byId("tenant").value);
    const keys = tenant()?.keys ?? [];
    options(byId("key"), keys.map((key) => [key.id, key.name]), remembered("key"));
    chooseKey();
}

function chooseKey() {
    remember("key", byId("key").value);
    bench.connection.leave();
    const models = tenant()?.keys.find((key) => key.id === byId("key").value)?.models ?? [];
    panels.forEach((panel) => panel.offer(models));
    explain(models);
    changed();
}

// What is missing before anything can be sent, and where to get it.
function explain(models) {
    const here = tenant();
    if (!here) {
        notice("You belong to no tenant yet. Ask an owner or admin of one to add you.");
    } else if (!here.may_generate) {
        notice(`In ${here.name} you are a viewer, and a viewer cannot generate. Ask an owner or admin to make you a developer.`);
    } else if (!here.keys.length) {
        notice(`${here.name} has no key that can be used for inference. `, el("a", { href: setup.add_key, textContent: "Make one" }), ", then come back.");
    } else if (!models.length) {
        notice("This key may use none of the models that are served. Choose another key, or change its models in the admin.");
    } else {
        notice();
    }
}

function notice(...content) {
    byId("notice").hidden = !content.length;
    byId("notice").replaceChildren(...content);
}

function state(name, words) {
    byId("connection").dataset.state = name;
    byId("connection").textContent = words;
}

// The panels

function addPanel(name) {
    const panel = new Panel(name, bench);
    panels.push(panel);
    byId("panels").append(panel.root);
    return panel;
}

function compare() {
    const two = panels.length === 1;
    if (two) {
        const [first] = panels;
        const second = addPanel("B");
        const models = [...first.part("model").options].map((option) => option.value);
        second.offer(models).then(() => { second.settings.copy(first.settings); return second.inherit(); });
    } else {
        const second = panels.pop();
        second.stop();
        second.root.remove();
    }
    byId("panels").classList.toggle("two", two);
    byId("compare").setAttribute("aria-pressed", String(two));
    changed();
}

// What they do

function ask(text) {
    if (!text.trim() || byId("send").disabled) {
        return;
    }
    prompt.value = "";
    notice();
    panels.forEach((panel) => panel.send(text));
}

function stop() {
    panels.forEach((panel) => panel.stop());
}

// Nothing that was typed is lost: a message that was refused is there again, to be sent once more.
function refused(text, error) {
    prompt.value ||= text;
    if (error.status === 401 && error.code === "invalid_api_key") {
        notice("You are logged out, or the key has stopped working. ", el("a", { href: `${setup.login}?next=${location.pathname}`, textContent: "Log in again" }), ".");
    }
}

function changed() {
    const busy = panels.some((panel) => panel.running);
    byId("stop").hidden = !busy;
    byId("send").hidden = busy;
    byId("send").disabled = busy || !bench.key() || !panels[0]?.part("model").value;
}

function enter(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        ask(prompt.value);
    }
}

function remember(name, value) {
    if (value) {
        localStorage.setItem(`playground-${name}`, value);
    }
}

function remembered(name) {
    return localStorage.getItem(`playground-${name}`);
}

start();
