// The API key: asked for in a dialog, kept in this tab's sessionStorage, never anywhere else.

const STORE = "portcullis-key";
const element = (id) => document.getElementById(id);
let asking = null;

export function currentKey() {
  return sessionStorage.getItem(STORE);
}

/** Open the dialog; true once a key is given. Those who ask at the same time share one dialog. */
export function askForKey(reason) {
  asking ??= ask(reason).finally(() => (asking = null));
  return asking;
}

/** Wire the button in the bar. */
export function setUpKey(onChange) {
  const show = () => {
    element("key").textContent = currentKey() ? "Key set" : "Key";
  };
  element("key").addEventListener("click", async () => {
    await askForKey("Reading may want a key; changing the gate, the models or the review queue wants an admin key.");
    show();
    onChange();
  });
  addEventListener("portcullis-key", show);
  show();
}

function ask(reason) {
  const dialog = element("key-dialog");
  const field = element("key-value");
  element("key-reason").textContent = reason;
  element("key-forget").hidden = !currentKey();
  field.value = "";
  return new Promise((resolve) => {
    const listening = new AbortController();
    const { signal } = listening;
    const finish = (given) => {
      listening.abort();
      dialog.close();
      dispatchEvent(new Event("portcullis-key"));
      resolve(given);
    };
    element("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      sessionStorage.setItem(STORE, field.value.trim());
      finish(true);
    }, { signal });
    element("key-forget").addEventListener("click", () => {
      sessionStorage.removeItem(STORE);
      finish(false);
    }, { signal });
    element("key-cancel").addEventListener("click", () => finish(false), { signal });
    dialog.addEventListener("cancel", () => finish(false), { signal });
    dialog.showModal();
    field.focus();
  });
}
