// A panel's settings: three states for every flag, a value or nothing for every number, and beside each what it inherits.

import { el, options } from "./dom.js";

const ASKED_FOR = "return_token_ids"; // the token view shows ids, so they are asked for until somebody says otherwise
const NOT_SET = { max_tokens: "what is left of the context", seed: "a random one", stop: "none" };
let fields = 0;

export class Settings {
    constructor(root, setup, onChange) {
        this.root = root;
        this.setup = setup;
        this.part = (name) => root.querySelector(`[data-part="${name}"]`);
        this.flags = new Map(Object.keys(setup.flags).map((name) => [name, this.flag(name)]));
        this.values = new Map(setup.values.map((name) => [name, this.value(name)]));
        root.addEventListener("input", () => { this.mark(); onChange(); });
        this.mark();
    }

    flag(name) {
        const select = el("select");
        options(select, [["inherit", "Inherit"], ["yes", "Yes"], ["no", "No"]], name === ASKED_FOR ? "yes" : "inherit");
        return this.field("flags", name, select);
    }

    value(name) {
        const input = el("input", { type: "text", inputMode: name === "stop" ? "text" : "decimal", placeholder: "Inherit", autocomplete: "off" });
        return this.field("values", name, input);
    }

    field(group, name, control) {
        const from = el("small", { textContent: " ", id: `from-${++fields}` });
        control.setAttribute("aria-describedby", from.id);
        const root = el("div", { data: { field: name } }, el("label", {}, el("code", { textContent: name }), control), from);
        this.part(group).append(root);
        return { root, control, from };
    }

    read() {
        const texts = (fields) => Object.fromEntries([...fields].map(([name, { control }]) => [name, control.value]));
        const text = (name) => this.part(name).value;
        return {
            model: text("model"), system: text("system"), logprobs: this.part("logprobs").checked, top: text("top"),
            flags: texts(this.flags), values: texts(this.values),
            kwargs: text("kwargs"), tools: text("tools"), extra: text("extra"),
        };
    }

    copy(other) {
        for (const name of ["model", "system", "top", "kwargs", "tools", "extra"]) {
            this.part(name).value = other.part(name).value;
        }
        this.part("logprobs").checked = other.part("logprobs").checked;
        for (const fields of ["flags", "values"]) {
            this[fields].forEach(({ control }, name) => { control.value = other[fields].get(name).control.value; });
        }
        this.mark();
    }

    // What the server says of each field, as GET /playground/defaults answers.
    inherits({ fields, policies }) {
        const bound = new Map(policies.map((policy) => [policy.field, policy]));
        for (const [name, { from, control }] of [...this.flags, ...this.values]) {
            const words = this.words(name, fields[name].value);
            const place = this.setup.places[fields[name].source];
            const policy = bound.get(name);
            from.textContent = policy ? this.ruled(policy, words) : `inherits ${words} (${place})`;
            if (control.tagName === "SELECT") {
                control.options[0].textContent = `Inherit: ${words}`;
            }
        }
    }

    ruled(policy, words) {
        const by = this.setup.places[policy.source];
        switch (policy.kind) {
            case "enforced":
                return policy.reject ? `fixed to ${words} by ${by}: anything else is refused` : `fixed to ${words} by ${by}: a value here has no effect`;
            case "forbidden":
                return `${words}; ${by} does not let a request set it`;
            default:
                return `${words}; ${by} allows ${policy.low ?? "any"} to ${policy.high ?? "any"}`;
        }
    }

    words(name, value) {
        if (value === null || (Array.isArray(value) && !value.length)) {
            return NOT_SET[name] ?? "nothing";
        }
        return typeof value === "boolean" ? (value ? "yes" : "no") : JSON.stringify(value);
    }

    mark() {
        const isSet = ({ control }) => (control.tagName === "SELECT" ? control.value !== "inherit" : control.value.trim() !== "");
        const all = [...this.flags.values(), ...this.values.values()];
        all.forEach((field) => field.root.toggleAttribute("data-set", isSet(field)));
        const texts = ["system", "kwargs", "tools", "extra"].filter((name) => this.part(name).value.trim() !== "");
        const count = all.filter(isSet).length + texts.length;
        const badge = this.part("changed");
        badge.hidden = count === 0;
        badge.textContent = `${count} set`;
    }
}
