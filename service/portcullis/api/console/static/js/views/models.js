// Models: what is served, how good it is, what it was made from; and the calls that change what is served.

import { getImageUrl, getText } from "../api.js";
import { fill, h } from "../dom.js";
import { failurePanel } from "../failures.js";
import { count, date, number, percent, score as scoreText } from "../format.js";
import { renderMarkdown } from "../markdown.js";
import { calibrationSheet } from "./calibration.js";
import { changesSheet } from "./model_changes.js";

export function modelsView(session) {
  const view = new ModelsView(session);
  return { root: view.root, show: () => view.show(), hide: () => view.hide() };
}

class ModelsView {
  #reportOf = null;

  constructor(session) {
    this.session = session;
    this.served = h("div", { class: "sheet" });
    this.figures = h("div", { class: "model-grid" });
    this.changes = changesSheet(session);
    this.calibration = calibrationSheet(session);
    this.report = h("article", { class: "report" });
    this.reportSheet = h("div", { class: "sheet" }, this.report);
    this.root = h(
      "section",
      { class: "view models", "aria-label": "Models" },
      h("header", { class: "intro" }, h("h1", {}, "Models")),
      h("div", { class: "stack" }, this.served, this.figures, this.changes.root, this.calibration, this.reportSheet),
    );
    session.addEventListener("models", () => this.root.hidden || this.#render());
  }

  show() {
    this.#render();
    const refresh = () => this.session.refresh({ ask: false }).catch(() => {});
    refresh();
    this.timer = setInterval(() => document.hidden || refresh(), 4000);
  }

  hide() {
    clearInterval(this.timer);
  }

  #render() {
    this.changes.render();
    for (const part of [this.figures, this.calibration, this.reportSheet]) part.hidden = !this.session.model;
    if (!this.session.model) {
      fill(this.served, h("p", { class: "empty" }, "No model is served."));
      return;
    }
    fill(this.served, this.#servedTable());
    fill(this.figures, insideSheet(this.session.version), outsideSheet(this.session.version), originSheet(this.session.version));
    this.#showReport();
  }

  #servedTable() {
    const rows = this.session.models.map((model) => {
      const version = model.versions.find(({ version }) => version === model.default_version);
      const isChosen = model.name === this.session.model.name;
      const others = model.versions.length - 1;
      return h(
        "tr",
        { class: isChosen ? "chosen" : "" },
        h("th", { scope: "row" }, h("button", { type: "button", class: "quiet name", "aria-pressed": String(isChosen), on: { click: () => this.session.choose(model.name) } }, model.name)),
        h("td", {}, `v${model.default_version}`, model.is_pinned ? ", pinned" : "", others > 0 ? ` (+${others} loaded)` : ""),
        h("td", {}, `${version.method.name}, ${version.method.backbone}`),
        h("td", { class: "number" }, percent(version.figures.accuracy)),
        h("td", {}, version.gate.operating_point ?? `threshold ${number(version.gate.threshold)}`),
        h("td", {}, version.providers[0]),
      );
    });
    const heads = ["model", "version", "method", "accuracy", "gate", "runs on"];
    return h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Models served" },
      h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: head === "accuracy" ? "number" : "" }, head)))), h("tbody", {}, rows)),
    );
  }

  async #showReport() {
    const { model, version } = this.session;
    const key = `${model.name}/${version.version}`;
    if (this.#reportOf === key) return;
    this.#reportOf = key;
    const query = `?version=${version.version}`;
    const base = this.session.path("/report");
    try {
      const text = await getText(base + query);
      fill(this.report, renderMarkdown(text, (source, words) => plot(`${base}/${source}${query}`, words)));
    } catch (failure) {
      this.#reportOf = null;
      fill(this.report, failure.status === 404 ? h("p", { class: "empty" }, "This bundle came without a report.") : failurePanel(failure, () => this.#showReport()));
    }
  }
}

function plot(path, words) {
  const picture = h("img", { alt: words });
  const frame = h("figure", {}, picture, h("figcaption", {}, words));
  getImageUrl(path).then(
    (url) => (picture.src = url),
    (failure) => fill(frame, h("p", { class: "small" }, `${words}: ${failure.message}`)),
  );
  return frame;
}

function insideSheet(version) {
  const { figures } = version;
  const rows = version.operating_points.map((point) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, point.name),
      h("td", { class: "number" }, scoreText(point.threshold, 1)),
      h("td", { class: "number" }, `≤ ${percent(point.alpha)}`),
      h("td", { class: "number" }, `≤ ${percent(point.rejected_share_bound)}`),
      h("td", { class: "number" }, point.name in figures.rejected ? percent(figures.rejected[point.name]) : "not measured"),
    ),
  );
  return h(
    "div",
    { class: "sheet" },
    h("h2", {}, "In-distribution"),
    h(
      "dl",
      { class: "big-facts" },
      bigFact("accuracy", percent(figures.accuracy, 2)),
      bigFact("ECE", number(figures.ece, 4)),
      bigFact("NLL", number(figures.nll, 3)),
      bigFact("Brier", number(figures.brier, 3)),
    ),
    h("p", { class: "small" }, `on ${count(figures.num_images)} ${measuredOn(figures)}`),
    h("h2", {}, "Operating points"),
    rows.length === 0
      ? h("p", { class: "empty" }, "Too few calibration images to promise any.")
      : scrolling("Operating points", table(["", "threshold", "familiar rejected, mean", "with 95 % confidence", "measured on test"], rows)),
    ...rightAnswers(version.promises),
  );
}

/** A version whose gate was calibrated where it runs has the figures of those images, or of the version that it came from. */
function measuredOn({ rejected }) {
  return Object.keys(rejected).length > 0 ? "test images that neither training nor calibration saw" : "images that training never saw";
}

/** The second promise, where the calibration images prove one. */
function rightAnswers(promises) {
  if (promises.length === 0) return [];
  const rows = promises.map((point) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, [point.gate, point.name].filter(Boolean).join("+")),
      h("td", { class: "number" }, `≥ ${percent(point.min_probability)}`),
      h("td", { class: "number" }, `≤ ${percent(point.risk)}`),
      h("td", { class: "number" }, percent(point.coverage)),
      h("td", { class: "number" }, percent(point.test_error, 2)),
    ),
  );
  return [
    h("h2", {}, "Right answers"),
    h("p", { class: "small" }, "Of familiar images that pass, with 95 % confidence; nothing is said about out-of-distribution (OOD) images that pass."),
    scrolling("Right answers", table(["", "probability", "wrong, at most", "pass", "wrong on test"], rows)),
  ];
}

function outsideSheet(version) {
  const sets = Object.entries(version.figures.outside);
  const shown = version.gate.operating_point ?? "accept95";
  const rows = sets.map(([name, set]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, name),
      h("td", { class: "number" }, percent(set.auroc)),
      h("td", { class: "number" }, percent(set.tnr_at_tpr95)),
      h("td", { class: "number" }, shown in set.caught ? percent(set.caught[shown]) : "not measured"),
      h("td", { class: "number" }, count(set.num_images)),
    ),
  );
  return h(
    "div",
    { class: "sheet" },
    h("h2", {}, "Out-of-distribution (OOD)"),
    rows.length === 0
      ? h("p", { class: "empty" }, "This bundle was not evaluated on out-of-distribution sets.")
      : scrolling("Out-of-distribution sets", table(["", "AUROC", "TNR@TPR95", `caught at ${shown}`, "images"], rows)),
  );
}

function originSheet(version) {
  const { provenance, image, method } = version;
  const facts = {
    made: date(version.created),
    classes: `${version.labels.length}: ${version.labels.slice(0, 20).join(", ")}${version.labels.length > 20 ? " …" : ""}`,
    image: `${image.width}×${image.height} pixels, ${image.resize_shorter_side ? `shorter side to ${image.resize_shorter_side}, centre crop` : "stretched"}, ${image.interpolation}`,
    method: `${method.name} on ${method.backbone}${method.fractional_regulariser ? ", with the fractional regulariser" : ""}`,
    score: scoreFact(version),
    temperature: number(version.temperature, 4),
    calibration: `${count(version.num_calibration_images)} images`,
    data: `${provenance.data}, fingerprint ${provenance.data_fingerprint.slice(0, 16)}`,
    commit: `${provenance.commit.slice(0, 12)}, seed ${provenance.seed}`,
    "runs on": `${version.providers.join(", ")} (asked for: ${version.providers_asked.join(", ")})${version.provider_refusals.map((refusal) => `; ${refusal}`).join("")}`,
  };
  return h("div", { class: "sheet wide" }, h("h2", {}, "Origin"), h("dl", { class: "facts" }, Object.entries(facts).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

/** What gates by default, with the weights of what it is made of. */
function scoreFact({ score, method }) {
  if (!score || score.parts.length === 1) return score?.name ?? method.score;
  const weighed = score.parts.map((name, index) => [name, score.weights[index]]).filter(([, weight]) => weight > 0);
  return `${score.name}: ${weighed.map(([name, weight]) => `${number(weight)} × ${name}`).join(" + ")}, each standardised`;
}

function bigFact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function table(heads, rows) {
  const cells = heads.map((head, index) => (head ? h("th", { scope: "col", class: index ? "number" : "" }, head) : h("td", {})));
  return h("table", {}, h("thead", {}, h("tr", {}, cells)), h("tbody", {}, rows));
}

function scrolling(name, content) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name }, content);
}
