// Light, dark or as the system has it: one choice for these pages and the admin, kept where unfold keeps it. Runs before the first paint.
(() => {
    const KEY = "_x_adminTheme";
    const read = () => {
        try {
            return JSON.parse(localStorage.getItem(KEY)) || "auto";
        } catch {
            return "auto";
        }
    };
    const system = matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
        const chosen = read();
        document.documentElement.dataset.theme = chosen === "auto" ? (system.matches ? "dark" : "light") : chosen;
    };
    apply();
    system.addEventListener("change", apply);
    addEventListener("DOMContentLoaded", () => {
        const select = document.getElementById("theme");
        select.value = read();
        select.addEventListener("change", () => {
            localStorage.setItem(KEY, JSON.stringify(select.value));
            apply();
            dispatchEvent(new Event("themechange"));
        });
    });
})();
