// Calibration: the gate on familiar images of one's own, as the next version. What they can promise is said by the service.

import { request, sendJson } from "../api.js";
import { announce, fill, h, icon } from "../dom.js";
import { failurePanel } from "../failures.js";
import { followersText } from "../followers.js";
import { count } from "../format.js";

export function calibrationSheet(session) {
  return new CalibrationSheet(session).root;
}

class CalibrationSheet {
  constructor(session) {
    this.session = session;
    this.outcome = h("div", { class: "outcome", role: "status" });
    this.root = h(
      "div",
      { class: "sheet" },
      h("h2", {}, "Calibrate where it runs ", h("span", { class: "small" }, "needs an admin key")),
      h("p", { class: "small" }, "Thresholds and promises on familiar images of your own, as they come in practice, none picked. The graph stays as it is; what is made is the next version, and it answers only when you say so."),
      this.#form(),
      this.outcome,
    );
  }

  #form() {
    const folder = { type: "file", webkitdirectory: true, multiple: true, "aria-label": "Folder of familiar images", on: { change: () => (this.uses("folder").checked = true) } };
    this.folder = h("input", folder);
    this.labels = h("input", { type: "checkbox" });
    this.activate = h("input", { type: "checkbox" });
    this.button = h("button", { type: "submit", class: "primary" }, "Calibrate");
    this.form = h(
      "form",
      { class: "calibration-form", on: { submit: (event) => this.#submit(event) } },
      h("label", {}, h("input", { type: "radio", name: "calibrate-on", value: "review", checked: true }), " labelled images of the review queue that were drawn by chance"),
      h("label", {}, h("input", { type: "radio", name: "calibrate-on", value: "folder" }), " a folder: ", this.folder),
      h("label", {}, this.labels, " its sub-folders are named after the labels"),
      h("label", {}, this.activate, " let the next version answer at once"),
      h("div", { class: "actions" }, this.button),
    );
    return this.form;
  }

  uses(source) {
    return this.form.querySelector(`input[name="calibrate-on"][value="${source}"]`);
  }

  async #submit(event) {
    event.preventDefault();
    const name = this.session.model.name;
    this.button.disabled = true;
    fill(this.outcome, h("p", { class: "small" }, "Looking at every image…"));
    try {
      await this.#show(name, await this.#ask(name));
    } catch (failure) {
      fill(this.outcome, failurePanel(failure));
    } finally {
      this.button.disabled = false;
    }
  }

  async #ask(name) {
    const isFolder = this.uses("folder").checked;
    const chosen = { ...(isFolder && this.labels.checked ? { labels: true } : {}), ...(this.activate.checked ? { activate: true } : {}) };
    const path = `/v1/models/${encodeURIComponent(name)}/calibrate?${new URLSearchParams(chosen)}`;
    const answer = await request(path, { method: "POST", body: isFolder ? this.#files() : undefined });
    return answer.json();
  }

  /** Each file under its path below the chosen folder: with labels its first part is the label. */
  #files() {
    const form = new FormData();
    for (const file of this.folder.files) {
      const [, ...below] = file.webkitRelativePath.split("/");
      if (!below.some((part) => part.startsWith("."))) form.append("files", file, below.join("/") || file.name);
    }
    return form;
  }

  async #show(name, made) {
    const text = `${name} v${made.version} is written, calibrated on ${count(made.num_images)} images.`;
    announce(text);
    const left = Object.entries(made.left_out).map(([reason, num]) => h("li", {}, `left out: ${num} × ${reason}`));
    fill(
      this.outcome,
      h(
        "div",
        { class: "notice done" },
        h("p", {}, h("strong", {}, text), made.is_default ? ` It answers now. ${followersText(made)}` : ""),
        made.num_unlabelled ? h("p", {}, `${count(made.num_unlabelled)} images that were drawn are not labelled yet: what is promised holds if none was picked.`) : null,
        h("p", { class: "small" }, "For familiar (in-distribution) images only:"),
        h("ul", { class: "promises" }, made.promises.map(promise), left),
        made.is_default ? null : h("div", { class: "actions" }, this.#swap(name, made.version)),
      ),
    );
    await this.session.refresh();
  }

  #swap(name, version) {
    const swap = async () => {
      try {
        const answer = await sendJson("PUT", `/v1/models/${encodeURIComponent(name)}/default`, { version });
        fill(this.outcome, h("div", { class: "notice done" }, h("p", {}, `${name} v${version} answers now. ${followersText(answer)}`)));
        await this.session.refresh();
      } catch (failure) {
        fill(this.outcome, failurePanel(failure));
      }
    };
    return h("button", { type: "button", on: { click: swap } }, `Let v${version} answer`);
  }
}

function promise({ is_kept: isKept, text }) {
  return h("li", { class: isKept ? "kept" : "unkept" }, icon(isKept ? "accept" : "reject"), ` ${text}`);
}
