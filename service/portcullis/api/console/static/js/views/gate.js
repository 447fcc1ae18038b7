// Gate: drag the threshold, see what it costs and what it catches, apply it.

import { sendJson } from "../api.js";
import { DASHES, LINE_COLOURS, distributionChart } from "../charts.js";
import { bins, scoreAt, shareBelow, sharesInBins, smoothed } from "../distribution.js";
import { announce, fill, h } from "../dom.js";
import { failurePanel } from "../failures.js";
import { followersText } from "../followers.js";
import { count, percent, points, rejectedShare, score as scoreText } from "../format.js";
import { ThresholdHandle } from "../threshold.js";
import { classTable, gatePoints, placeOf, pointInForce, rightText, ruleText } from "./gate_points.js";

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
    const own = version.score?.name ?? version.method.score;
    this.prefix = version.gate.score === own ? "" : `${version.gate.score}:`;
    this.points = gatePoints(version, this.reference, this.prefix);
    this.placed = placeOf(version.gate, this.reference);
    this.pointInForce = pointInForce(version.gate, this.reference);
    this.choice = { threshold: this.placed, operatingPoint: version.gate.operating_point };
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
    const { operating_point: point, right } = this.inForce;
    return h(
      "header",
      { class: "intro" },
      h("h1", {}, "Gate"),
      h(
        "p",
        {},
        `${model.name} v${version.version} rejects `,
        ...ruleText(this.inForce, (value) => this.#text(value)),
        point ? ` (${point})` : "",
        `: ${rejectedShare(this.inForce)} of familiar images.${right ? ` ${rightText(right)}` : ""}`,
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
      h("div", { class: "choices", role: "group", "aria-label": "Operating points" }, this.points.map((point) => this.#pointButton(point))),
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
    const name = `${this.prefix}accept${+share.toFixed(4)}`;
    const known = this.points.find((point) => point.name === name);
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
    this.resetButton = h("button", { type: "button", class: "quiet", on: { click: () => this.#choose(this.placed, this.inForce.operating_point) } }, "Reset");
    return h("div", { class: "actions" }, this.applyButton, this.resetButton, h("span", { class: "small" }, "needs an admin key"));
  }

  #update() {
    const { threshold, operatingPoint } = this.choice;
    const isChanged = threshold !== this.placed || operatingPoint !== this.inForce.operating_point;
    this.applyButton.disabled = !isChanged;
    this.resetButton.hidden = !isChanged;
    this.thresholdField.value = Number(threshold.toPrecision(6));
    const named = operatingPoint?.match(/accept([\d.]+)/)?.[1];
    this.acceptField.value = operatingPoint ? (named ?? "") : (100 * (1 - this.#rejected(threshold))).toFixed(2);
    for (const button of this.content.querySelectorAll("[data-point]"))
      button.setAttribute("aria-pressed", String(button.dataset.point === operatingPoint));
    fill(this.panel, this.#summary(isChanged), this.#caught(isChanged));
  }

  #summary(isChanged) {
    const chosen = this.#pointOf(this.choice.operatingPoint);
    const rejected = chosen?.rejected ?? this.#rejected(this.choice.threshold);
    const before = this.pointInForce?.rejected ?? this.#rejected(this.placed);
    return h(
      "div",
      { class: "headline" },
      h("p", { class: "small" }, "familiar (in-distribution) images rejected"),
      h("p", { class: "figure", id: "rejected" }, percent(rejected)),
      h("p", { class: "small" }, isChanged ? `${points(rejected - before)} against the gate in force` : this.#promiseText()),
      chosen?.right ? h("p", { class: "small" }, rightText(chosen.right)) : null,
      chosen?.classes ? classTable(chosen.classes, (value) => this.#text(value)) : null,
    );
  }

  /** One that may be pressed, or the one in force; undefined for a bare threshold and for a share that was typed. */
  #pointOf(name) {
    return this.points.find((point) => point.name === name) ?? (this.pointInForce?.name === name ? this.pointInForce : undefined);
  }

  #promiseText() {
    const point = this.reference.operating_points.find(({ name }) => this.prefix + name === this.inForce.operating_point);
    if (!point && this.inForce.operating_point && !this.inForce.right) return `promised: at most ${percent(this.inForce.expected_rejected_share)}${this.inForce.class_thresholds ? " of each answered class" : ""} on average`;
    return point
      ? `promised: at most ${percent(point.alpha)} on average, ${percent(point.rejected_share_bound)} with 95 % confidence`
      : "counted on the calibration images";
  }

  #caught(isChanged) {
    if (this.sets.length === 0) {
      const whose = this.prefix ? `no ${this.reference.score} scores` : "no scores";
      return h("p", { class: "small" }, `This bundle holds ${whose} of out-of-distribution (OOD) sets.`);
    }
    const rows = this.sets.map((set, index) => {
      const share = this.#shareCaught(set, this.choice.threshold, this.choice.operatingPoint);
      const before = this.#shareCaught(set, this.placed, this.inForce.operating_point);
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, h("span", { class: `swatch line line-${(index % 5) + 1}` }), set.name),
        h("td", { class: "bar-cell" }, h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill", vars: { "--share": share } }))),
        h("td", { class: "number" }, percent(share)),
        isChanged ? h("td", { class: "number small" }, points(share - before)) : null,
      );
    });
    const chosen = this.#pointOf(this.choice.operatingPoint);
    const least = chosen?.right ? " by their score alone, so at the least" : chosen?.classes ? " by the lowest of the thresholds, so at the least" : "";
    return h("table", { class: "caught" }, h("caption", {}, `out-of-distribution (OOD) images caught${least}, as measured when the bundle was made`), h("tbody", {}, rows));
  }

  /** Counted where the bundle says so, otherwise from the set's quantiles. What a probability catches, nobody measured. */
  #shareCaught(set, threshold, operatingPoint) {
    const point = this.#pointOf(operatingPoint);
    if (point?.right && point.right.gate === "") return 0; // no score is too low
    const counted = this.session.version.figures.outside[set.name].caught;
    return counted[point?.right ? point.right.gate : operatingPoint] ?? shareBelow(set.quantiles, threshold);
  }

  async #apply() {
    const before = this.inForce;
    const { threshold, operatingPoint } = this.choice;
    const spelled = operatingPoint ?? (this.prefix ? `${this.prefix}${threshold}` : null);
    const change = spelled ? { operating_point: spelled } : { threshold };
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
    const name = (gate) => (gate.threshold === null ? gate.operating_point : `${this.#text(gate.threshold)}${gate.operating_point ? ` (${gate.operating_point})` : ""}`);
    const text = `Threshold ${name(before)} → ${name(after)}. Familiar images rejected: ${rejectedShare(before)} → ${rejectedShare(after)}. ${followersText(after)}`;
    const done = after.behind?.length ? "Accepted." : "Applied.";
    fill(this.outcome, h("div", { class: "notice done" }, h("p", {}, h("strong", {}, `${done} `), text)));
    announce(`${done} ${text}`);
  }

  #rejected(threshold) {
    return shareBelow(this.reference.quantiles, threshold);
  }

  #text(value) {
    const { edges } = this.reference.histogram;
    return scoreText(value, edges.at(-1) - edges[0]);
  }
}
