// Gates as people choose them: what may be pressed, where the handle stands for each, what each rejects and promises.

import { h } from "../dom.js";
import { percent } from "../format.js";

/**
 * The operating points, those by class, and those that promise to be right, on the score in force:
 * {name, threshold}, and where there is more than one threshold {rejected}, {classes: {label: threshold}}, {right}.
 */
export function gatePoints(version, reference, prefix) {
  const named = reference.operating_points.map(({ name, threshold }) => ({ name: prefix + name, threshold }));
  if (prefix) return named;
  const byClass = Object.entries(version.class_thresholds).map(([name, classes]) => ({
    name: `${name}:by-class`,
    threshold: lowest(classes),
    rejected: 1 - Number.parseFloat(name.slice("accept".length)) / 100,
    classes,
  }));
  const right = version.promises.map((point) => ({
    name: [point.gate, point.name].filter(Boolean).join("+"),
    threshold: named.find(({ name }) => name === point.gate)?.threshold ?? reference.histogram.edges[0],
    rejected: 1 - point.coverage,
    right: point,
  }));
  return [...named, ...byClass, ...right];
}

/** The gate in force as such a point, whether it may be pressed or not; null for a bare threshold. */
export function pointInForce(gate, reference) {
  if (!gate.operating_point) return null;
  const hasMore = gate.class_thresholds !== null || gate.right !== null;
  return {
    name: gate.operating_point,
    threshold: placeOf(gate, reference),
    ...(hasMore ? { rejected: gate.expected_rejected_share } : {}),
    ...(gate.class_thresholds ? { classes: gate.class_thresholds } : {}),
    ...(gate.right ? { right: gate.right } : {}),
  };
}

/** Where the handle stands for a gate without one threshold for all: at the lowest class, or at the end of the scale. */
export function placeOf(gate, reference) {
  if (gate.class_thresholds) return lowest(gate.class_thresholds);
  return gate.threshold ?? reference.histogram.edges[0];
}

/** What is rejected, in the words of a sentence that goes on with the share. */
export function ruleText(gate, scoreText) {
  const scores = gate.class_thresholds ? "the threshold of the answered class" : gate.threshold === null ? null : scoreText(gate.threshold);
  const least = gate.right ? percent(gate.right.min_probability) : null;
  if (scores === null) return ["probabilities below ", h("strong", {}, least)];
  return ["scores below ", h("strong", {}, scores), least === null ? "" : ` and probabilities below ${least}`];
}

export function rightText(right) {
  return `Of familiar (in-distribution) images that pass, at most ${percent(right.risk)} are answered wrongly, with 95 % confidence; ${percent(right.coverage)} pass. Nothing is said about out-of-distribution (OOD) images.`;
}

/** The thresholds of a gate by class, folded away: there may be a thousand. */
export function classTable(classes, scoreText) {
  const rows = Object.entries(classes).map(([label, threshold]) => h("tr", {}, h("th", { scope: "row" }, label), h("td", { class: "number" }, scoreText(threshold))));
  const heads = h("tr", {}, h("th", { scope: "col" }, "answered class"), h("th", { scope: "col", class: "number" }, "threshold"));
  return h("details", { class: "by-class" }, h("summary", {}, "Thresholds by class"), h("table", {}, h("thead", {}, heads), h("tbody", {}, rows)));
}

function lowest(classes) {
  return Math.min(...Object.values(classes));
}
