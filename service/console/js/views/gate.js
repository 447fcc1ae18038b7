// Gate: drag the threshold, see what it costs and what it catches, apply it.

import { sendJson } from "../api.js";
import { DASHES, LINE_COLOURS, distributionChart } from "../charts.js";
import { bins, scoreAt, shareBelow, sharesInBins, smoothed } from "../distribution.js";
import { announce, fill, h } from "../dom.js";
import { failurePanel } from "../failures.js";
import { count, percent, points, score as scoreText } from "../format.js";
import { ThresholdHandle } from "../threshold.js";

export function gateView(session) {
  const view = new GateView(session);
  return { root: view.root, show: () => view.show(), hide: () => {} };
}

class GateView {
  #built = null;

  constructor(session) {
    this.session = session;
    this.outcome = h("div", { class: "outcome", role: "status" });
    this.content = h("div", {});
    this.root = h("section", { class: "view gate", "aria-label": "Gate" }, this.content);
    session.addEventListener("models", () => this.root.hidden || !session.model || this.#render());
  }

  async show() {
    await this.#render();
    this.session.refresh({ ask: false }).catch(() => {});
  }

  async #render() {
    const { model, version } = this.session;
    const key = JSON.stringify([model.name, version.version, version.gate]);
    if (this.#built === key) return;
    try {
      this.reference = await this.session.reference();
    } catch (failure) {
      fill(this.content, failurePanel(failure, () => this.#render()));
      return;
    }
    this.#built = key;
    this.inForce = version.gate;
    this.choice = { threshold: version.gate.threshold, operatingPoint: version.gate.operating_point };
    this.#build();
  }

  #build() {
    this.chart?.destroy();
    this.handle?.destroy();
    this.sets = Object.entries(this.reference.outside)
      .filter(([, set]) => set.quantiles.length > 1)
      .map(([name, set], index) => ({ name, ...set, colour: LINE_COLOURS[index % 5], dash: DASHES[index % 5] }));
    const plot = h("div", { class: "chart" });
    const wrapper = h("div", { class: "chart-frame" }, plot);
    this.panel = h("div", { class: "panel" });
    fill(
      this.content,
      this.#intro(),
      h("div", { class: "gate-grid" }, h("div", { class: "sheet" }, this.#legend(), wrapper, this.#controls()), h("div", { class: "sheet" }, this.panel, this.#applyRow(), this.outcome)),
    );
    this.#draw(plot, wrapper);
    this.#update();
  }

  #intro() {
    const { model, version } = this.session;
    const { operating_point: point, threshold, expected_rejected_share: share } = this.inForce;
    return h(
      "header",
      { class: "intro" },
      h("h1", {}, "Gate"),
      h(
        "p",
        {},
        `${model.name} v${version.version} rejects scores below `,
        h("strong", {}, this.#text(threshold)),
        point ? ` (${point})` : "",
        `: at most ${percent(share)} of familiar images.`,
      ),
    );
  }

  #legend() {
    return h(
      "ul",
      { class: "legend" },
      h("li", {}, h("span", { class: "swatch reference" }), `familiar: ${count(this.reference.num_images)} calibration images`),
      this.sets.map((set, index) => h("li", {}, h("span", { class: `swatch line line-${(index % 5) + 1}` }), set.name)),
    );
  }

  #draw(plot, wrapper) {
    const { edges, shares } = bins(this.reference, this.sets.map((set) => set.quantiles));
    this.edges = edges;
    const lines = this.sets.map((set) => ({ ...set, isSmooth: true, shares: smoothed(sharesInBins(set.quantiles, edges)) }));
    const marks = () => ({ threshold: this.choice.threshold });
    this.chart = distributionChart(plot, { edges, shares, lines, marks, height: 320 });
    this.handle = new ThresholdHandle(wrapper, this.chart, {
      value: this.choice.threshold,
      describe: (value) => `${this.#text(value)}, rejects ${percent(this.#rejected(value))} of familiar images`,
      onChange: (value) => this.#choose(value, null),
    });
  }

  #controls() {
    const threshold = h("input", { type: "number", step: "any", id: "threshold", on: { change: (event) => this.#typed(event.target) } });
    const accept = h("input", { type: "number", step: "any", min: "0.0001", max: "99.9999", id: "accept", on: { change: (event) => this.#promise(event.target) } });
    Object.assign(this, { thresholdField: threshold, acceptField: accept });
    return h(
      "div",
      { class: "controls" },
      h("div", { class: "choices", role: "group", "aria-label": "Operating points" }, this.reference.operating_points.map((point) => this.#pointButton(point))),
      h("label", { class: "field inline" }, "accept", accept, "% of familiar images"),
      h("label", { class: "field inline" }, "threshold", threshold),
    );
  }

  #pointButton(point) {
    const use = () => this.#choose(point.threshold, point.name);
    return h("button", { type: "button", "data-point": point.name, "aria-pressed": "false", on: { click: use } }, point.name);
  }

  #typed(field) {
    const value = Number.parseFloat(field.value);
    if (Number.isFinite(value)) this.#choose(value, null);
  }

  /** accept<percent>: the service computes the exact threshold; the quantiles place it here. */
  #promise(field) {
    const share = Number.parseFloat(field.value);
    if (!(share > 0 && share < 100)) return;
    const name = `accept${+share.toFixed(4)}`;
    const known = this.reference.operating_points.find((point) => point.name === name);
    this.#choose(known?.threshold ?? scoreAt(this.reference.quantiles, 1 - share / 100), name);
  }

  #choose(threshold, operatingPoint) {
    this.choice = { threshold, operatingPoint };
    this.handle.set(threshold);
    this.chart.redraw();
    this.#update();
  }

  #applyRow() {
    this.applyButton = h("button", { type: "button", class: "primary", on: { click: () => this.#apply() } }, "Apply");
    this.resetButton = h("button", { type: "button", class: "quiet", on: { click: () => this.#choose(this.inForce.threshold, this.inForce.operating_point) } }, "Reset");
    return h("div", { class: "actions" }, this.applyButton, this.resetButton, h("span", { class: "small" }, "needs an admin key"));
  }

  #update() {
    const { threshold, operatingPoint } = this.choice;
    const isChanged = threshold !== this.inForce.threshold || operatingPoint !== this.inForce.operating_point;
    this.applyButton.disabled = !isChanged;
    this.resetButton.hidden = !isChanged;
    this.thresholdField.value = Number(threshold.toPrecision(6));
    this.acceptField.value = operatingPoint ? operatingPoint.slice("accept".length) : (100 * (1 - this.#rejected(threshold))).toFixed(2);
    for (const button of this.content.querySelectorAll("[data-point]"))
      button.setAttribute("aria-pressed", String(button.dataset.point === operatingPoint));
    fill(this.panel, this.#summary(isChanged), this.#caught(isChanged));
  }

  #summary(isChanged) {
    const rejected = this.#rejected(this.choice.threshold);
    const before = this.#rejected(this.inForce.threshold);
    return h(
      "div",
      { class: "headline" },
      h("p", { class: "small" }, "familiar images rejected"),
      h("p", { class: "figure", id: "rejected" }, percent(rejected)),
      h("p", { class: "small" }, isChanged ? `${points(rejected - before)} against the gate in force` : this.#promiseText()),
    );
  }

  #promiseText() {
    const point = this.reference.operating_points.find(({ name }) => name === this.inForce.operating_point);
    return point
      ? `promised: at most ${percent(point.alpha)} on average, ${percent(point.rejected_share_bound)} with 95 % confidence`
      : "counted on the calibration images";
  }

  #caught(isChanged) {
    if (this.sets.length === 0) return h("p", { class: "small" }, "This bundle holds no scores of outside sets.");
    const rows = this.sets.map((set, index) => {
      const share = this.#shareCaught(set, this.choice.threshold, this.choice.operatingPoint);
      const before = this.#shareCaught(set, this.inForce.threshold, this.inForce.operating_point);
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, h("span", { class: `swatch line line-${(index % 5) + 1}` }), set.name),
        h("td", { class: "bar-cell" }, h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill", vars: { "--share": share } }))),
        h("td", { class: "number" }, percent(share)),
        isChanged ? h("td", { class: "number small" }, points(share - before)) : null,
      );
    });
    return h("table", { class: "caught" }, h("caption", {}, "outside images caught, as measured when the bundle was made"), h("tbody", {}, rows));
  }

  /** Counted where the bundle says so, otherwise from the set's quantiles. */
  #shareCaught(set, threshold, operatingPoint) {
    return this.session.version.figures.outside[set.name].caught[operatingPoint] ?? shareBelow(set.quantiles, threshold);
  }

  async #apply() {
    const before = this.inForce;
    const change = this.choice.operatingPoint ? { operating_point: this.choice.operatingPoint } : { threshold: this.choice.threshold };
    this.applyButton.disabled = true;
    try {
      const after = await sendJson("PUT", this.session.path("/gate"), change);
      this.#showChange(before, after);
      await this.session.refresh();
      this.#built = null;
      await this.#render();
      this.handle.element.focus();
    } catch (failure) {
      fill(this.outcome, failurePanel(failure, () => this.#apply()));
      this.#update();
    }
  }

  #showChange(before, after) {
    const name = (gate) => `${this.#text(gate.threshold)}${gate.operating_point ? ` (${gate.operating_point})` : ""}`;
    const text = `Threshold ${name(before)} → ${name(after)}. Familiar images rejected: at most ${percent(before.expected_rejected_share)} → ${percent(after.expected_rejected_share)}. Every worker follows within a second.`;
    fill(this.outcome, h("div", { class: "notice done" }, h("p", {}, h("strong", {}, "Applied. "), text)));
    announce(`Applied. ${text}`);
  }

  #rejected(threshold) {
    return shareBelow(this.reference.quantiles, threshold);
  }

  #text(value) {
    const { edges } = this.reference.histogram;
    return scoreText(value, edges.at(-1) - edges[0]);
  }
}
