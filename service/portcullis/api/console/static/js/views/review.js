// Review: the kept images as a grid, strangest first; label or dismiss them from the keyboard; export what is labelled.

import { getImageUrl, getJson, request, sendJson } from "../api.js";
import { announce, fill, h, verdictBadge } from "../dom.js";
import { failurePanel } from "../failures.js";
import { count, percent } from "../format.js";
import { downloadZip } from "../download.js";

const PAGE = 60;
const MAX_CANDIDATES = 4;
const EXTENSIONS = { "image/jpeg": "jpg", "image/tiff": "tif" };

export function reviewView(session) {
  const view = new ReviewView(session);
  return { root: view.root, show: () => view.show(), hide: () => {} };
}

class ReviewView {
  #undo = null;

  constructor(session) {
    this.session = session;
    this.grid = h("ul", { class: "review-grid", "aria-label": "Images to review, strangest first", on: { keydown: (event) => this.#press(event) } });
    this.status = h("p", { class: "small", role: "status" });
    this.more = h("button", { type: "button", hidden: true, on: { click: () => this.#load(this.cursor) } }, "Show more");
    this.problem = h("div", { class: "outcome" });
    this.labels = h("datalist", { id: "review-labels" });
    this.tools = h("div", { hidden: true }, this.#bar(), this.#help());
    this.root = h(
      "section",
      { class: "view review", "aria-label": "Review" },
      h("header", { class: "intro" }, h("h1", {}, "Review"), h("p", {}, "Images that the service kept for a person's look: those it rejected, and a sample of those it accepted. The strangest, most out-of-distribution (OOD), first.")),
      this.tools,
      this.problem,
      this.grid,
      h("div", { class: "actions after" }, this.more),
      this.labels,
    );
    session.addEventListener("models", () => this.root.hidden || !session.model || this.#fillFilters());
  }

  show() {
    this.#fillFilters();
    return this.#load();
  }

  #bar() {
    const reload = { change: () => this.#load() };
    this.stateFilter = h("select", { on: reload }, ["open", "labelled", "dismissed"].map((state) => h("option", { value: state }, state)));
    this.verdictFilter = h("select", { on: reload }, h("option", { value: "" }, "any"), h("option", { value: "reject" }, "reject"), h("option", { value: "accept" }, "accept"));
    this.labelFilter = h("select", { on: reload });
    this.sampleFilter = h("select", { on: reload }, h("option", { value: "" }, "all"), h("option", { value: "true" }, "drawn by chance"));
    this.exportButton = h("button", { type: "button", on: { click: () => this.#export() } }, "Export labelled");
    this.undoButton = h("button", { type: "button", class: "quiet", disabled: true, on: { click: () => this.#takeBack() } }, "Undo");
    return h(
      "div",
      { class: "review-bar" },
      h("label", { class: "field" }, "state", this.stateFilter),
      h("label", { class: "field" }, "verdict", this.verdictFilter),
      h("label", { class: "field" }, "answered label", this.labelFilter),
      h("label", { class: "field", title: "Drawn whatever the verdict: a fair sample, the only images that a gate may be calibrated on" }, "kept", this.sampleFilter),
      h("span", { class: "spacer" }),
      this.undoButton,
      this.exportButton,
    );
  }

  #help() {
    const key = (text) => h("kbd", {}, text);
    return h(
      "div",
      { class: "review-help" },
      this.status,
      h("p", { class: "small" }, key("←"), key("→"), " move · ", key("Enter"), " type a label · ", key("a"), " the answer is right · ", key("d"), " dismiss · ", key("u"), " undo"),
    );
  }

  #fillFilters() {
    const { labels } = this.session.version;
    const chosen = this.labelFilter.value;
    fill(this.labelFilter, h("option", { value: "" }, "any"), labels.map((label) => h("option", { value: label, selected: label === chosen }, label)));
    fill(this.labels, labels.map((label) => h("option", { value: label })));
  }

  async #load(cursor = null) {
    const filters = { model: this.session.model.name, state: this.stateFilter.value, verdict: this.verdictFilter.value, label: this.labelFilter.value, sampled: this.sampleFilter.value, limit: PAGE, cursor };
    const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value));
    try {
      const page = await getJson(`/v1/review?${query}`, { ask: false });
      this.tools.hidden = false;
      fill(this.problem);
      this.#show(page, cursor !== null);
    } catch (failure) {
      this.tools.hidden = true;
      fill(this.grid);
      this.more.hidden = true;
      fill(this.problem, this.#explain(failure));
    }
  }

  /** Off is a choice, not a fault: say how to turn it on. */
  #explain(failure) {
    if (failure.status === 404) return blank("This service has no review queue.", "");
    if (failure.status === 403 && !failure.wantsKey) return blank("Off", `${failure.message}.`);
    return failurePanel(failure, () => this.#load());
  }

  #show(page, isMore) {
    this.cursor = page.next_cursor;
    this.num = page.num_items;
    this.more.hidden = page.next_cursor === null;
    if (!isMore) this.#forget();
    const first = this.grid.children.length;
    this.grid.append(...page.items.map((item) => this.#tile(item)));
    if (first < this.grid.children.length) this.grid.children[first].tabIndex = 0;
    this.#count();
  }

  #forget() {
    for (const tile of this.grid.children) URL.revokeObjectURL(tile.url);
    fill(this.grid);
  }

  #count() {
    const state = this.stateFilter.value;
    this.status.textContent = this.num === 0 ? `No ${state} image with these filters.` : `${count(this.num)} ${state}, ${this.grid.children.length} shown`;
  }

  #tile(item) {
    const picture = h("img", { class: "thumb pixels", alt: `kept image, answered ${item.label}` });
    const field = h("input", { type: "text", list: "review-labels", class: "label-field", "aria-label": "Label", placeholder: "label", value: item.true_label ?? "", tabindex: "-1" });
    const tile = h(
      "li",
      { class: "review-item", tabindex: "-1", "data-id": item.id, "aria-label": `${item.verdict}, answered ${item.label}, stranger than ${percent(1 - item.p_value)}`, on: { focus: () => this.#rove(tile) } },
      h("div", { class: "thumb-frame" }, picture),
      h("div", { class: "row" }, h("strong", {}, item.label), verdictBadge(item.verdict, item.reason)),
      this.#candidates(item, (label) => this.#decide(tile, { label })),
      h("p", { class: "small" }, `stranger than ${percent(1 - item.p_value)}`, item.num_seen > 1 ? ` · seen ${item.num_seen} times` : ""),
      item.decided_by ? h("p", { class: "small" }, `${item.state} by ${item.decided_by}`) : null,
      h("div", { class: "row" }, field, h("button", { type: "button", class: "quiet", tabindex: "-1", "aria-label": "Dismiss", on: { click: () => this.#decide(tile, { state: "dismissed" }) } }, "✕")),
    );
    Object.assign(tile, { item, field });
    field.addEventListener("keydown", (event) => this.#typed(event, tile));
    getImageUrl(`/v1/review/${item.id}/image`, { ask: false }).then((url) => (picture.src = tile.url = url), () => (picture.alt = "the image is gone"));
    return tile;
  }

  /** The labels that hold the truth of a familiar image 95 % of the time, to be taken with one press. */
  #candidates(item, choose) {
    const button = (label) => h("button", { type: "button", class: "quiet", tabindex: "-1", on: { click: () => choose(label) } }, label);
    return item.candidates.length === 0 ? null : h("div", { class: "choices", role: "group", "aria-label": "Likely labels" }, item.candidates.slice(0, MAX_CANDIDATES).map(button));
  }

  #rove(tile) {
    for (const other of this.grid.children) other.tabIndex = other === tile ? 0 : -1;
  }

  #press(event) {
    const tile = event.target;
    if (!tile.item || event.ctrlKey || event.metaKey || event.altKey) return;
    const columns = getComputedStyle(this.grid).gridTemplateColumns.split(" ").length;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const actions = {
      Enter: () => tile.field.focus(),
      l: () => tile.field.focus(),
      a: () => this.#decide(tile, { label: tile.item.label }),
      d: () => this.#decide(tile, { state: "dismissed" }),
      u: () => this.#takeBack(),
    };
    if (event.key in moves) {
      const tiles = [...this.grid.children];
      tiles[tiles.indexOf(tile) + moves[event.key]]?.focus();
    } else if (event.key in actions) actions[event.key]();
    else return;
    event.preventDefault();
  }

  #typed(event, tile) {
    event.stopPropagation();
    if (event.key === "Escape") tile.focus();
    if (event.key === "Enter" && tile.field.value.trim()) this.#decide(tile, { label: tile.field.value.trim() });
  }

  async #decide(tile, change) {
    try {
      await sendJson("PUT", `/v1/review/${tile.item.id}`, change);
    } catch (failure) {
      fill(this.problem, failurePanel(failure));
      return;
    }
    fill(this.problem);
    this.#undo = tile.item;
    this.undoButton.disabled = false;
    announce(change.label ? `Labelled ${change.label}` : "Dismissed");
    const next = tile.nextElementSibling ?? tile.previousElementSibling;
    tile.remove();
    this.num -= 1;
    this.#count();
    next?.focus();
    if (this.grid.children.length === 0) await this.#load();
  }

  async #takeBack() {
    if (this.#undo === null) return;
    const { id, state, true_label: label } = this.#undo;
    this.#undo = null;
    this.undoButton.disabled = true;
    await sendJson("PUT", `/v1/review/${id}`, state === "labelled" ? { label } : { state });
    await this.#load();
    [...this.grid.children].find((tile) => tile.item.id === id)?.focus();
    announce("Undone");
  }

  /** One folder a label, as the training line reads it. */
  async #export() {
    this.exportButton.disabled = true;
    try {
      const items = await this.#labelled();
      if (items.length === 0) return fill(this.problem, h("p", { class: "notice" }, "Nothing is labelled yet."));
      await downloadZip(`review-${this.session.model.name}.zip`, this.#files(items));
      fill(this.problem, h("p", { class: "notice done" }, `Exported ${count(items.length)} images.`));
    } catch (failure) {
      fill(this.problem, failurePanel(failure));
    } finally {
      this.exportButton.disabled = false;
    }
    return undefined;
  }

  async #labelled() {
    const items = [];
    for (let cursor = ""; cursor !== null; ) {
      const query = new URLSearchParams({ model: this.session.model.name, state: "labelled", limit: 500, ...(cursor ? { cursor } : {}) });
      const page = await getJson(`/v1/review?${query}`);
      items.push(...page.items);
      cursor = page.next_cursor;
    }
    return items;
  }

  async *#files(items) {
    for (const item of items) {
      const name = `${item.true_label}/${item.id}.${EXTENSIONS[item.media_type] ?? item.media_type.split("/")[1]}`;
      yield { name, input: await request(`/v1/review/${item.id}/image`), lastModified: new Date(item.created) };
    }
  }
}

function blank(title, text) {
  return h("div", { class: "sheet blank" }, h("h2", {}, title), h("p", {}, text));
}
