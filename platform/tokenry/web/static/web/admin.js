// Select2 writes its boxes, whenever it gets to it, without a name that a screen reader could say; the field's own label is that name.
addEventListener("DOMContentLoaded", () => {
    const nameBoxes = () => {
        for (const box of document.querySelectorAll(".select2-selection[aria-labelledby]")) {
            const select = box.closest(".select2-container").parentElement.querySelector("select");
            const name = document.querySelector(`label[for="${select?.id}"]`)?.textContent.trim() || "Choose";
            for (const part of [box, box.querySelector(".select2-selection__rendered")]) {
                part?.removeAttribute("aria-labelledby");
                part?.setAttribute("aria-label", name);
            }
        }
    };
    new MutationObserver(nameBoxes).observe(document.body, { childList: true, subtree: true });
    nameBoxes();
});
