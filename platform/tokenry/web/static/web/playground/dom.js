// Elements without markup in strings: text stays text, whatever a model or a tenant writes.

export function el(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name === "data") {
            Object.assign(node.dataset, value);
        } else if (name in node) {
            node[name] = value;
        } else {
            node.setAttribute(name, value);
        }
    }
    node.append(...children);
    return node;
}

export function options(select, items, chosen) {
    select.replaceChildren(...items.map(([value, text]) => el("option", { value, textContent: text, selected: value === chosen })));
}

export const byId = (id) => document.getElementById(id);
