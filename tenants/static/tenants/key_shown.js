// A reload would post the form again and make another key: from here on it leads to the key's own page.
const secret = document.getElementById("key-secret");
history.replaceState(null, "", secret.dataset.keyUrl);

document.getElementById("key-copy").addEventListener("click", async () => {
    const said = document.getElementById("key-copied");
    try {
        await navigator.clipboard.writeText(secret.textContent);
        said.textContent = "Copied.";
    } catch {
        getSelection().selectAllChildren(secret);
        said.textContent = "Selected: copy it with the keyboard.";
    }
});
