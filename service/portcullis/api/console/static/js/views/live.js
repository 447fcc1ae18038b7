// Live: what the service sees now, against what its model was calibrated on.

import { getJson, getText } from "../api.js";
import { binData, distributionChart, timeChart } from "../charts.js";
import { bins, sharesFromSteps, windowSteps } from "../distribution.js";
import { fill, h, icon } from "../dom.js";
import { failurePanel } from "../failures.js";
import { count, duration, number, percent, rejectedShare } from "../format.js";
import { Readings } from "../readings.js";
import { fleetAlarm, fleetSheet } from "./live_fleet.js";

const POLL_SECONDS = 1.5;
const REFRESH_POLLS = 6;
const MAX_CLASSES = 12;

export function liveView(session) {
  const view = new LiveView(session);
  return { root: view.root, show: () => view.show(), hide: () => view.hide() };
}

class LiveView {
  #timer = null;
  #isShown = false;
  #key = null;
  #gate = null;
  #numPolls = 0;

  constructor(session) {
    this.session = session;
    this.content = h("div", {});
    this.root = h(
      "section",
      { class: "view live", "aria-label": "Live" },
      h("header", { class: "intro" }, h("h1", {}, "Live"), (this.subtitle = h("p", {}, "Reading…"))),
      this.content,
    );
    session.addEventListener("models", () => this.#isShown && this.#restart());
    document.addEventListener("visibilitychange", () => this.#isShown && !document.hidden && this.#poll());
  }

  show() {
    this.#isShown = true;
    this.#restart();
  }

  hide() {
    this.#isShown = false;
    clearTimeout(this.#timer);
  }

  /** Another model or version has a past of its own. */
  #restart() {
    const { model, version } = this.session;
    if (!model) return;
    const key = `${model.name}/${version.version}`;
    if (this.#key !== key) {
      this.#key = key;
      this.readings = new Readings(model.name, version.version);
      this.#takeDown();
    }
    const gate = JSON.stringify(version.gate);
    if (this.#gate !== gate) this.#takeDown();
    this.#gate = gate;
    this.#poll();
  }

  async #poll() {
    clearTimeout(this.#timer);
    const readings = this.readings;
    try {
      const [drift, metrics] = await Promise.all([getJson(this.session.path("/drift"), { ask: false }), getText("/metrics", { ask: false })]);
      if (readings !== this.readings) return;
      readings.add(drift, metrics);
      await this.#render(drift);
      this.#numPolls += 1;
      if (this.#numPolls % REFRESH_POLLS === 0) await this.session.refresh({ ask: false }); // somebody may swap or move the gate
    } catch (failure) {
      if (!failure.isUnreachable) this.#fail(failure); // an outage is said once, above; what was last seen stays
    }
    if (this.#isShown && !document.hidden) this.#timer = setTimeout(() => this.#poll(), 1000 * POLL_SECONDS);
  }

  #fail(failure) {
    this.#takeDown();
    this.subtitle.textContent = "";
    fill(this.content, failurePanel(failure, () => this.#poll()));
  }

  #takeDown() {
    for (const chart of Object.values(this.charts ?? {})) chart.destroy();
    this.charts = null;
    fill(this.content);
  }

  async #render(drift) {
    if (drift.num_images === 0 && this.readings.numAnswered === 0) return this.#showEmpty(drift);
    const reference = await this.session.referenceOf(drift.score);
    if (!this.charts) this.#build(reference, drift);
    this.subtitle.textContent = `${this.session.model.name} v${this.session.version.version}: the last ${count(drift.num_images)} images, by all workers${drift.fleet ? " of this instance" : ""}. Updated every ${POLL_SECONDS} seconds.`;
    this.#showAlarm(drift);
    fill(this.tiles, tiles(drift, this.readings.latest));
    fill(this.fleet, fleetSheet(drift.fleet));
    this.#showCharts(drift, reference);
    fill(this.mix, classMix(drift, this.session.version.labels));
    return undefined;
  }

  #showEmpty(drift) {
    this.#takeDown();
    this.subtitle.textContent = "";
    const command = `curl --data-binary @photo.jpg ${location.origin}/v1/predict`;
    fill(
      this.content,
      h("div", { class: "sheet blank" }, h("h2", {}, "No traffic yet"), h("p", {}, "This model has not answered an image since it came. Send one and it shows here within two seconds."), h("code", {}, command)),
      fleetAlarm(drift.fleet),
      fleetSheet(drift.fleet),
    );
  }

  #build(reference, drift) {
    const frame = () => h("div", { class: "chart", role: "img" });
    const frames = { verdicts: frame(), scores: frame(), rejected: frame(), evidence: frame(), psi: frame(), latency: frame(), queue: frame() };
    this.alarm = h("div", { class: "alarm", role: "status" });
    this.tiles = h("dl", { class: "tiles" });
    this.mix = h("ul", { class: "mix" });
    this.fleet = h("div", {});
    const lines = drift.fleet ? legend(["this instance", "ink line"], ["fleet", "line-2 line dashed"]) : null;
    fill(
      this.content,
      this.alarm,
      this.tiles,
      this.fleet,
      h(
        "div",
        { class: "live-grid" },
        sheet("Verdicts", legend(["accept", "accept line"], ["reject", "reject line dashed"]), "images a second", frames.verdicts),
        sheet("Scores", legend(["familiar (in-distribution)", "reference"], ["window", "ink line"]), "share of images, the window by its quantiles; the shaded part is rejected", frames.scores),
        sheet("Rejected", null, `share of the window; dashed: ${rejectedShare(this.session.version.gate)} of familiar images`, frames.rejected),
        sheet("Evidence of drift", lines, "log10; dashed: the alarm", frames.evidence),
        sheet("PSI", null, "p-values against even: above 0.2 a marked change, no alarm", frames.psi),
        sheet("Class mix", null, "bars: the window; ticks: the reference", this.mix),
        sheet("Latency", legend(["p50", "ink line"], ["p99", "line-2 line dashed"]), "from the last byte in to the answer", frames.latency),
        sheet("Queue", null, "images that wait for the engine", frames.queue),
      ),
    );
    this.frames = frames;
    this.charts = this.#charts(frames, reference, Boolean(drift.fleet));
  }

  #charts(frames, reference, isFleet) {
    const line = (label, colour, more = {}) => ({ label, colour, ...more });
    const at = (name) => frames[name].parentElement.querySelector(".readout");
    const shares = (value) => percent(value, value > 0 && value < 0.1 ? 1 : 0);
    const alpha = () => this.session.version.gate.expected_rejected_share;
    const { edges, shares: expected } = (this.bins = bins(reference, Object.values(reference.outside).map((set) => set.quantiles).filter((quantiles) => quantiles.length > 1)));
    return {
      verdicts: timeChart(frames.verdicts, { readout: at("verdicts"), series: [line("accept", "accept"), line("reject", "reject", { dash: [6, 4] })], least: 1, format: (value) => number(value, value < 10 ? 1 : 0) }),
      scores: distributionChart(frames.scores, {
        edges,
        shares: expected,
        lines: [{ shares: expected.map(() => 0), colour: "ink" }],
        marks: () => ({ threshold: this.session.version.gate.threshold }),
        height: 170,
      }),
      rejected: timeChart(frames.rejected, { readout: at("rejected"), series: [line("rejected", "reject")], format: shares, level: alpha, range: (_, low, high) => [0, Math.max(1.3 * alpha(), 1.15 * high, 0.01)] }),
      evidence: timeChart(frames.evidence, { readout: at("evidence"), series: [line(isFleet ? "here" : "log10", "ink"), ...(isFleet ? [line("fleet", "set-2", { dash: [6, 4] })] : [])], format: (value) => number(value, 1), level: () => this.alarmLevel, range: (_, low, high) => [Math.min(0, low), Math.max(1.25 * this.alarmLevel, 1.1 * high)] }),
      psi: timeChart(frames.psi, { readout: at("psi"), series: [line("PSI", "ink")], format: (value) => number(value, 2), range: (plot, low, high) => [0, Math.max(0.3, Math.min(1.15 * high, Math.max(1, 1.5 * (this.readings.columns.psi.at(-1) ?? 0))))] }),
      latency: timeChart(frames.latency, { readout: at("latency"), series: [line("p50", "ink"), line("p99", "set-2", { dash: [6, 4] })], format: duration }),
      queue: timeChart(frames.queue, { readout: at("queue"), series: [line("waiting", "ink")], format: (value) => number(value, 0), range: (_, low, high) => [0, Math.max(4, 1.15 * high)] }),
    };
  }

  #showCharts(drift, reference) {
    this.alarmLevel = Math.log10(drift.threshold);
    const { columns, latest } = this.readings;
    const { time } = columns;
    this.charts.verdicts.setData([time, columns.accepted, columns.rejected]);
    this.charts.rejected.setData([time, columns.rejectRatio]);
    this.charts.evidence.setData(drift.fleet ? [time, columns.evidence, columns.fleetEvidence] : [time, columns.evidence]);
    this.charts.psi.setData([time, columns.psi]);
    this.charts.latency.setData([time, columns.p50, columns.p99]);
    this.charts.queue.setData([time, columns.queue]);
    const shares = sharesFromSteps(windowSteps(drift, reference), this.bins.edges);
    this.charts.scores.setData(binData(this.bins.edges, this.bins.shares, [{ shares }]));
    describe(this.frames.verdicts, `Now ${number(latest.accepted, 1)} accepted and ${number(latest.rejected, 1)} rejected images a second`);
    describe(this.frames.scores, `Scores of the window over those of the calibration images`);
    describe(this.frames.rejected, `${percent(drift.reject_ratio)} of the window are rejected, ${percent(drift.unsure_ratio)} of it as unsure`);
    describe(this.frames.evidence, `Evidence of drift ${number(drift.evidence_log10, 1)}, alarm at ${number(this.alarmLevel, 1)}`);
    describe(this.frames.psi, `PSI ${number(drift.psi, 2)}`);
    describe(this.frames.latency, `Half of the answers take ${duration(latest.p50)} or less, 99 in 100 take ${duration(latest.p99)} or less`);
    describe(this.frames.queue, `${number(latest.queue, 0)} images wait`);
  }

  #showAlarm(drift) {
    const state = `${Boolean(drift.alarm)} ${Boolean(drift.fleet?.alarm)}`;
    if (state === this.alarmState && this.alarm.childElementCount === Number(drift.alarm) + Number(drift.fleet?.alarm ?? 0)) return;
    this.alarmState = state;
    const text = `The input no longer looks like the calibration images. By proof, this happens by chance at most once in ${count(drift.threshold)} images on average.`;
    fill(this.alarm, drift.alarm ? h("div", { class: "notice failure" }, icon("error"), h("div", {}, h("p", {}, h("strong", {}, "Drift alarm. "), text))) : [], fleetAlarm(drift.fleet));
  }
}

function tiles(drift, latest) {
  const [low, high] = drift.reject_ratio_interval;
  return [
    tile("images a second", number(latest.accepted + latest.rejected, 1), `${count(latest.numAnswered)} in all`),
    tile("rejected", percent(drift.reject_ratio), `95 %: ${(100 * low).toFixed(1)} to ${percent(high)}${drift.unsure_ratio ? `; as unsure ${percent(drift.unsure_ratio)}` : ""}`),
    tile("evidence of drift", number(drift.evidence_log10, 1), `alarm at ${number(Math.log10(drift.threshold), 1)}`),
    tile("PSI", number(drift.psi, 2), `KS ${number(drift.ks, 2)}`),
    tile("latency", duration(latest.p50), `p99 ${duration(latest.p99)}`),
    tile("queue", number(latest.queue, 0), `of ${number(latest.queueCapacity, 0)}`),
  ];
}

function tile(name, value, note) {
  return h("div", { class: "tile" }, h("dt", { class: "small" }, name), h("dd", { class: "value" }, value), h("dd", { class: "small" }, note));
}

/** The classes that differ most from the reference, where there are too many to show all. */
function classMix(drift, labels) {
  if (!drift.class_mix) return [h("li", { class: "small" }, "The window is empty.")];
  const rows = labels.map((label, index) => ({ label, share: drift.class_mix[index], expected: drift.class_mix_reference[index] }));
  const shown = rows.length <= MAX_CLASSES ? rows : rows.sort((a, b) => Math.abs(b.share - b.expected) - Math.abs(a.share - a.expected)).slice(0, MAX_CLASSES);
  const widest = Math.max(...shown.flatMap(({ share, expected }) => [share, expected]));
  return shown.map(({ label, share, expected }) =>
    h(
      "li",
      {},
      h("span", { class: "bar-label" }, label),
      h("span", { class: "bar-track", "aria-hidden": "true" }, h("span", { class: "bar-fill", vars: { "--share": share / widest } }), h("span", { class: "tick", vars: { "--share": expected / widest } })),
      h("span", { class: "bar-value" }, `${percent(share)} (${percent(expected)})`),
    ),
  );
}

function sheet(title, key, note, content) {
  return h("div", { class: "sheet" }, h("div", { class: "heading-row" }, h("h2", {}, title), key), h("p", { class: "small note" }, h("span", {}, note), h("span", { class: "readout", "aria-hidden": "true" })), content);
}

function legend(...entries) {
  return h("ul", { class: "legend" }, entries.map(([text, kind]) => h("li", {}, h("span", { class: `swatch ${kind}` }), text)));
}

function describe(frame, text) {
  frame.setAttribute("aria-label", text);
}
