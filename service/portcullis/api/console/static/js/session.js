// What the views share: the models served, which one is chosen, and its reference.

import { getJson } from "./api.js";

export class Session extends EventTarget {
  models = [];
  refused = [];
  #name = null;
  #references = new Map();

  /** Ask again what is served; tells the views where anything changed. */
  async refresh(options = {}) {
    const before = JSON.stringify(this.models);
    const { models, refused = [] } = await getJson("/v1/models", options);
    Object.assign(this, { models, refused });
    if (JSON.stringify(this.models) !== before) this.dispatchEvent(new Event("models"));
  }

  /** The chosen model, or the one that answers when none is named. */
  get model() {
    return this.models.find((model) => model.name === this.#name) ?? this.models.find((model) => model.is_default) ?? null;
  }

  choose(name) {
    this.#name = name;
    this.dispatchEvent(new Event("models"));
  }

  /** The version that answers, as /v1/models describes it. */
  get version() {
    return this.model?.versions.find((version) => version.version === this.model.default_version) ?? null;
  }

  path(suffix = "") {
    return `/v1/models/${encodeURIComponent(this.model.name)}${suffix}`;
  }

  /** The reference of the version that answers, of the score that gates; asked for once. */
  reference() {
    const key = `${this.model.name}/${this.version.version}/${this.version.created}/${this.version.gate.score}`;
    if (!this.#references.has(key)) {
      const asked = getJson(this.path(`/reference?version=${this.version.version}`));
      asked.catch(() => this.#references.delete(key));
      this.#references.set(key, asked);
    }
    return this.#references.get(key);
  }

  /** The same once the page knows which score gates: somebody may have chosen another since it last looked. */
  async referenceOf(score) {
    if (score !== this.version.gate.score) await this.refresh({ ask: false });
    return this.reference();
  }
}
