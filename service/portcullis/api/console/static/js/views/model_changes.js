// The calls that change what is served: load, swap, shadow, promote, unload, rescan. Errors as the service words them.

import { sendJson } from "../api.js";
import { announce, fill, h } from "../dom.js";
import { failurePanel } from "../failures.js";
import { followersText } from "../followers.js";
import { count, duration, number, percent } from "../format.js";

const CONFIRM_SECONDS = 5;

export function changesSheet(session) {
  const sheet = new ChangesSheet(session);
  return { root: sheet.root, render: () => sheet.render() };
}

class ChangesSheet {
  constructor(session) {
    this.session = session;
    this.versions = h("div", {});
    this.outcome = h("div", { class: "outcome", role: "status" });
    this.root = h(
      "div",
      { class: "sheet" },
      h("h2", {}, "Change what is served ", h("span", { class: "small" }, "needs an admin key")),
      this.versions,
      this.#form(),
      this.outcome,
    );
  }

  render() {
    const { model } = this.session;
    if (model && this.shownModel !== model.name) this.nameField.value = this.shownModel = model.name;
    fill(this.versions, model ? [this.#table(model), this.#shadow(model)] : null, this.#refused());
  }

  #table(model) {
    const rows = model.versions.map(({ version, created }) => {
      const isDefault = version === model.default_version;
      const isShadow = version === model.shadow?.version;
      const role = isDefault ? "answers" : isShadow ? "in the shadow" : "loaded";
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, `${model.name} v${version}`),
        h("td", {}, role),
        h("td", {}, created.slice(0, 10)),
        h(
          "td",
          { class: "number" },
          isDefault ? null : this.#button("Let it answer", () => this.#swap(model.name, version)),
          isDefault || isShadow ? null : this.#confirmed("Unload", () => this.#call(`Unloaded v${version}`, "DELETE", model.name, `/versions/${version}`)),
        ),
      );
    });
    return h("table", { class: "versions" }, h("tbody", {}, rows));
  }

  #shadow(model) {
    const shadow = model.shadow;
    if (!shadow) return null;
    const compared =
      shadow.num_images === 0
        ? "nothing compared yet"
        : `${count(shadow.num_images)} images compared: same label ${percent(shadow.label_agreement)}, same verdict ${percent(shadow.verdict_agreement)}, ` +
          `p-value ${number(shadow.p_value_shift, 3)}, engine ${duration(shadow.seconds)} against ${duration(shadow.live_seconds)}`;
    return h(
      "div",
      { class: "notice" },
      h("p", {}, h("strong", {}, `v${shadow.version} is in the shadow`), ` and sees ${percent(shadow.share, 0)} of the traffic: ${compared}.`),
      h(
        "div",
        { class: "actions" },
        this.#button("Promote", () => this.#call(`v${shadow.version} answers now`, "POST", model.name, "/shadow/promote")),
        this.#button("Drop", () => this.#call("Dropped the candidate", "DELETE", model.name, "/shadow")),
      ),
    );
  }

  #refused() {
    const refused = this.session.refused;
    if (refused.length === 0) return null;
    return h("div", { class: "notice" }, h("p", {}, h("strong", {}, "Refused: "), "these lie in the models directory but do not validate."), h("ul", {}, refused.map((entry) => h("li", { class: "small" }, `${entry.model}/${entry.version}: ${entry.reason}`))));
  }

  #form() {
    this.nameField = h("input", { type: "text", id: "change-name", spellcheck: "false", autocomplete: "off" });
    this.versionField = h("input", { type: "number", id: "change-version", min: "1", step: "1" });
    this.shareField = h("input", { type: "number", id: "change-share", min: "0.01", max: "100", step: "any", value: "10" });
    const run = (action) => () => this.#withVersion(action);
    return h(
      "form",
      { class: "change-form", on: { submit: (event) => event.preventDefault() } },
      h("label", { class: "field" }, "model", this.nameField),
      h("label", { class: "field" }, "version", this.versionField),
      this.#button("Load", run((name, version) => this.#call(`Loaded ${name} v${version}`, "POST", name, `/versions/${version}`))),
      this.#button("Let it answer", run((name, version) => this.#swap(name, version))),
      h("label", { class: "field" }, "share, %", this.shareField),
      this.#button("Shadow", run((name, version) => this.#call(`v${version} is in the shadow`, "PUT", name, "/shadow", { version, share: Number(this.shareField.value) / 100 }))),
      h("span", { class: "spacer" }),
      this.#button("Look for new versions", () => this.#rescan()),
      this.#confirmed("Unload the model", () => this.#call(`Unloaded ${this.nameField.value}`, "DELETE", this.nameField.value.trim(), "")),
    );
  }

  #withVersion(action) {
    const version = Number.parseInt(this.versionField.value, 10);
    if (!(version >= 1)) {
      this.versionField.focus();
      return fill(this.outcome, h("p", { class: "small" }, "Which version? A whole number from 1."));
    }
    return action(this.nameField.value.trim(), version);
  }

  #swap(name, version) {
    return this.#call(`${name} v${version} answers now`, "PUT", name, "/default", { version });
  }

  async #rescan() {
    await this.#run(async () => {
      const answer = await sendJson("POST", "/v1/models/rescan");
      const adopted = answer.adopted.length ? `Adopted ${answer.adopted.join(", ")}. ${followersText(answer)}` : "Nothing new.";
      return `${adopted}${answer.refused.length ? ` Refused: ${answer.refused.length}.` : ""}`;
    });
  }

  async #call(done, method, name, suffix, content) {
    await this.#run(async () => {
      const answer = await sendJson(method, `/v1/models/${encodeURIComponent(name)}${suffix}`, content);
      return `${done}. ${followersText(answer)}`;
    });
  }

  async #run(change) {
    fill(this.outcome, h("p", { class: "small" }, "Working…"));
    try {
      const text = await change();
      fill(this.outcome, h("div", { class: "notice done" }, h("p", {}, text)));
      announce(text);
      await this.session.refresh();
    } catch (failure) {
      fill(this.outcome, failurePanel(failure, failure.wantsKey ? () => this.#run(change) : null));
    }
  }

  #button(text, action) {
    return h("button", { type: "button", on: { click: action } }, text);
  }

  /** What takes something away asks once more, in the same place. */
  #confirmed(text, action) {
    const button = h("button", { type: "button" }, text);
    let isArmed = false;
    button.addEventListener("click", () => {
      if (isArmed) return action();
      isArmed = true;
      button.textContent = `Really? ${text}`;
      setTimeout(() => {
        isArmed = false;
        button.textContent = text;
      }, 1000 * CONFIRM_SECONDS);
      return undefined;
    });
    return button;
  }
}
