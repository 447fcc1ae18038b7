// Try: images in, answers out, each beside the distribution that its score is judged by.

import { getImageUrl, getJson, request } from "../api.js";
import { distributionChart } from "../charts.js";
import { bins } from "../distribution.js";
import { announce, fill, h, icon, verdictBadge } from "../dom.js";
import { failurePanel } from "../failures.js";
import { inWords, percent, score as scoreText } from "../format.js";

const AT_ONCE = 4;
const MAX_CARDS = 60;
const TOP_K = 5;
const SMALL_IMAGE = 96;

export function tryView(session) {
  const view = new TryView(session);
  return { root: view.root, show: () => view.show(), hide: () => view.hide() };
}

class TryView {
  #waiting = [];
  #running = 0;
  #isShown = false;
  #examplesOf = null;

  constructor(session) {
    this.session = session;
    this.cards = h("ol", { class: "cards", "aria-label": "Answers, newest first" });
    this.examples = h("div", { class: "examples", hidden: true });
    this.clearButton = h("button", { type: "button", class: "quiet", hidden: true, on: { click: () => this.#clear() } }, "Clear");
    this.root = h("section", { class: "view try", "aria-label": "Try" }, this.#drop(), this.examples, this.#heading(), this.cards);
    addEventListener("paste", (event) => this.#isShown && this.#take(event.clipboardData?.files));
    for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => this.#dragged(event));
    addEventListener("dragleave", (event) => event.relatedTarget || this.zone.classList.remove("over"));
    session.addEventListener("models", () => this.#isShown && session.model && this.#showExamples());
  }

  show() {
    this.#isShown = true;
    this.#showExamples();
  }

  hide() {
    this.#isShown = false;
  }

  #drop() {
    this.picker = h("input", { type: "file", id: "files", multiple: true, class: "unseen", on: { change: () => this.#take(this.picker.files) } });
    this.zone = h(
      "label",
      { class: "drop", for: "files" },
      icon("upload"),
      h("span", { class: "drop-title" }, "Drop images here, paste them, or ", h("u", {}, "pick files")),
      h("span", { class: "small" }, "Each is sent to this service and nowhere else"),
    );
    return h("div", { class: "drop-frame" }, this.picker, this.zone);
  }

  #heading() {
    this.count = h("h2", {}, "Answers");
    this.heading = h("div", { class: "heading", hidden: true }, this.count, this.clearButton);
    return this.heading;
  }

  #dragged(event) {
    if (!this.#isShown || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    this.zone.classList.toggle("over", event.type === "dragover");
    if (event.type === "drop") this.#take(event.dataTransfer.files);
  }

  #take(files) {
    for (const file of files ?? []) this.#add(file.name || "pasted image", file);
    this.picker.value = "";
  }

  #add(name, blob) {
    const card = new Card(name, blob);
    this.cards.prepend(card.root);
    while (this.cards.children.length > MAX_CARDS) this.cards.lastElementChild.card.remove();
    this.#waiting.push(card);
    this.#updateHeading();
    this.#pump();
  }

  /** A few at once: enough to keep the service busy, few enough not to be shed. */
  #pump() {
    while (this.#running < AT_ONCE && this.#waiting.length > 0) {
      this.#running += 1;
      this.#ask(this.#waiting.shift()).finally(() => {
        this.#running -= 1;
        this.#pump();
      });
    }
  }

  async #ask(card) {
    const { model, version } = this.session;
    const query = new URLSearchParams({ model: model.name, top_k: Math.min(TOP_K, version.labels.length) });
    try {
      const answered = await request(`/v1/predict?${query}`, {
        method: "POST",
        headers: { "content-type": "application/octet-stream" },
        body: card.blob,
      });
      const answer = await answered.json();
      card.showAnswer(answer, await this.session.referenceOf(answer.score_name));
    } catch (failure) {
      card.showFailure(failure, () => {
        this.#waiting.push(card);
        this.#pump();
      });
    }
  }

  #clear() {
    for (const item of [...this.cards.children]) item.card.remove();
    this.#updateHeading();
    this.picker.focus();
  }

  #updateHeading() {
    const num = this.cards.children.length;
    this.heading.hidden = this.clearButton.hidden = num === 0;
    this.count.textContent = num === 1 ? "1 image" : `${num} images`;
  }

  async #showExamples() {
    const { model, version } = this.session;
    const key = `${model.name}/${version.version}`;
    if (this.#examplesOf === key) return;
    this.#examplesOf = key;
    const query = `?version=${version.version}`;
    const base = this.session.path("/examples");
    const { examples } = await getJson(base + query).catch(() => ({ examples: [] }));
    const buttons = examples.map(({ file, title }) => this.#exampleButton(`${base}/${file}${query}`, title));
    fill(this.examples, h("h2", {}, "Or try one that came with the bundle"), h("div", { class: "strip" }, buttons));
    this.examples.hidden = examples.length === 0;
  }

  #exampleButton(path, title) {
    const picture = h("img", { alt: "", class: "thumb" });
    getImageUrl(path).then((url) => (picture.src = url), () => {});
    const use = async () => this.#add(title, await (await request(path)).blob());
    return h("button", { type: "button", class: "example", on: { click: use } }, picture, h("span", {}, title));
  }
}

/** One image and what the service said of it. */
class Card {
  constructor(name, blob) {
    Object.assign(this, { name, blob, chart: null, url: URL.createObjectURL(blob) });
    this.body = h("div", { class: "card-body" }, h("p", { class: "waiting" }, "Waiting for the answer…"));
    this.picture = h("img", { class: "thumb", src: this.url, alt: "", on: { load: () => this.#sharpen(), error: () => this.#giveUp() } });
    this.frame = h("div", { class: "thumb-frame" }, this.picture);
    this.root = h("li", { class: "card" }, this.frame, this.body);
    this.root.card = this;
  }

  remove() {
    this.chart?.destroy();
    URL.revokeObjectURL(this.url);
    this.root.remove();
  }

  showAnswer(answer, reference) {
    this.root.dataset.verdict = answer.verdict;
    const width = reference.histogram.edges.at(-1) - reference.histogram.edges[0];
    const words = inWords(answer.p_value, reference.num_images, answer.operating_point?.includes(":by-class"));
    const plot = h("div", { class: "chart", role: "img", "aria-label": describeChart(answer, reference, width) });
    fill(
      this.body,
      h("p", { class: "file", title: this.name }, this.name),
      h("div", { class: "answer" }, verdictBadge(answer.verdict, answer.reason), h("strong", { class: "label" }, answer.label), h("span", { class: "probability" }, percent(answer.probability))),
      h("p", { class: "words" }, words),
      topBars(answer.top),
      plot,
      h(
        "p",
        { class: "small figures" },
        `score ${scoreText(answer.score, width)} · threshold ${scoreText(answer.threshold, width)}`,
        answer.min_probability > 0 ? ` · probability at least ${percent(answer.min_probability)}` : "",
        answer.operating_point ? ` (${answer.operating_point})` : "",
        ` · p = ${Number(answer.p_value.toPrecision(3))}`,
      ),
    );
    const { edges, shares } = bins(reference);
    const marks = () => ({ threshold: answer.threshold, score: answer.score ?? -Infinity, verdict: answer.verdict });
    this.chart = distributionChart(plot, { edges, shares, marks, height: 104, compact: true });
    announce(`${this.name}: ${answer.verdict}${answer.reason ? ` as ${answer.reason}` : ""}, ${answer.label}, ${percent(answer.probability)}. ${words}.`);
  }

  showFailure(failure, retry) {
    const again = failure.isUnreachable || failure.wantsKey || failure.status === 503 ? retry : null;
    fill(this.body, h("p", { class: "file", title: this.name }, this.name), failurePanel(failure, again));
  }

  /** Tiny images are shown as the pixels that they are. */
  #sharpen() {
    this.picture.classList.toggle("pixels", this.picture.naturalWidth < SMALL_IMAGE);
  }

  #giveUp() {
    fill(this.frame, icon("image"));
  }
}

function topBars(top) {
  return h(
    "ol",
    { class: "bars", "aria-label": "Most probable classes" },
    top.map(({ label, probability }) =>
      h(
        "li",
        {},
        h("span", { class: "bar-label" }, label),
        h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill", vars: { "--share": probability } })),
        h("span", { class: "bar-value" }, percent(probability)),
      ),
    ),
  );
}

function describeChart(answer, reference, width) {
  return (
    `Scores of the ${reference.num_images} calibration images, higher is more familiar (in-distribution), lower stranger (out-of-distribution, OOD). ` +
    `This image scores ${scoreText(answer.score, width)}, the threshold is ${scoreText(answer.threshold, width)}: ${answer.verdict}.`
  );
}
