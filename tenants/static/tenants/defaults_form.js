// While defaults are edited: beside each field what is in effect, below what becomes of a request, and before saving what would change.

(() => {
    const PAUSE = 300; // milliseconds without a keystroke before the server is asked
    const preview = document.getElementById("preview");
    const form = preview.closest("form");
    const dialog = document.getElementById("preview-differences");
    let timer = null;
    let asked = 0;

    async function ask() {
        const answer = await fetch(preview.dataset.url, { method: "POST", body: new FormData(form), credentials: "same-origin" });
        if (!answer.ok) {
            throw new Error("The preview cannot be had: reload the page.");
        }
        return answer.json();
    }

    async function update() {
        const turn = ++asked;
        try {
            const answer = await ask();
            if (turn === asked) {
                show(answer);
            }
        } catch (error) {
            document.getElementById("preview-answer").textContent = error.message;
        }
    }

    function show({ fields, request, faults }) {
        for (const [column, text] of Object.entries(fields)) {
            const field = document.getElementById(`id_${column}`) ?? document.querySelector(`.field-${column}`);
            if (field) {
                const note = effect(column, field);
                const inherits = document.getElementById(`id_${column}_helptext`)?.textContent ?? "";
                note.textContent = text;
                note.toggleAttribute("data-own", text.endsWith("(set here)"));
                note.hidden = inherits.includes(text.replace("in effect", "inherits")); // said once is enough
            }
        }
        const wrong = Object.entries(faults).map(([name, texts]) => element("p", `${name}: ${texts.join(" ")}`, "preview-refused"));
        document.getElementById("preview-answer").replaceChildren(...wrong, ...becomes(request));
    }

    function effect(column, field) {
        const id = `effect_${column}`;
        let note = document.getElementById(id);
        if (!note) {
            note = element("span", "", "preview-effect");
            note.id = id;
            field.insertAdjacentElement("afterend", note);
        }
        return note;
    }

    function becomes(request) {
        if (!request) {
            return [];
        }
        if (request.refused) {
            return [element("p", `Refused: ${request.refused}`, "preview-refused")];
        }
        if (!request.outcomes.length) {
            return [element("p", "Nothing applies to it but what is built in.")];
        }
        const rows = request.outcomes.map((item) => [item.field, item.asked, item.becomes, item.why, item.overruled]);
        return [table(["Field", "The request says", "It becomes", "Why"], rows)];
    }

    function table(titles, rows) {
        const made = element("table", "", "preview-table");
        const head = made.createTHead().insertRow();
        titles.forEach((title) => { const cell = element("th", title); cell.scope = "col"; head.append(cell); });
        const body = made.createTBody();
        for (const [name, ...cells] of rows) {
            const row = body.insertRow();
            row.classList.toggle("overruled", cells[titles.length - 1] === true);
            row.insertCell().append(element("code", name));
            cells.slice(0, titles.length - 1).forEach((text) => { row.insertCell().textContent = text; });
        }
        return made;
    }

    function element(tag, text, className = "") {
        const made = document.createElement(tag);
        made.textContent = text;
        made.className = className;
        return made;
    }

    // Saving. What is wrong with the form is the server's to say, as ever; so is everything where the preview cannot be had.

    let confirmed = false;

    form.addEventListener("submit", (event) => {
        if (!confirmed) {
            event.preventDefault();
            confirm();
        }
    });

    async function confirm() {
        const answer = await ask().catch(() => null);
        if (!answer?.differences.length) {
            return save();
        }
        const rows = answer.differences.map((item) => [item.field, item.before, item.after]);
        dialog.querySelector('[data-part="table"]').replaceChildren(table(["Field", "Before", "After"], rows));
        dialog.showModal();
        return dialog.querySelector('[data-part="save"]').focus();
    }

    function save() {
        confirmed = true;
        form.requestSubmit();
    }

    dialog.querySelector('[data-part="save"]').addEventListener("click", save);
    dialog.querySelector('[data-part="back"]').addEventListener("click", () => dialog.close());
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(update, PAUSE); });
    form.addEventListener("change", () => { clearTimeout(timer); timer = setTimeout(update, PAUSE); });
    update();
})();
