// The fleet under Live: its evidence of drift, and every instance beside the others. Nothing where there is no fleet.

import { h, icon } from "../dom.js";
import { count, duration, number, percent } from "../format.js";

const HEADS = ["instance", "version", "gate", "images", "evidence", "rejected", "PSI", "heard of"];
const NUMBERS = new Set(["images", "evidence", "rejected", "PSI"]);

/** The sheet for what `/drift` says of the fleet. */
export function fleetSheet(fleet) {
  if (!fleet) return [];
  const level = Math.log10(fleet.threshold);
  const by = fleet.updated_by ? `, gathered by ${fleet.updated_by} ${ago(fleet.seconds_ago)}` : ", not gathered yet";
  const text = `Evidence over ${count(fleet.num_images_since_reset)} images of all instances: ${number(fleet.evidence_log10, 1)}, alarm at ${number(level, 1)}${by}. Of the ${count(fleet.num_images)} images in their windows ${percent(fleet.reject_ratio)} are rejected; PSI ${number(fleet.psi, 2)}.`;
  return [
    h(
      "div",
      { class: "sheet fleet" },
      h("h2", {}, `Fleet of ${fleet.num_instances}`),
      h("p", { class: "small note" }, text),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Instances of the fleet" }, instances(fleet)),
    ),
  ];
}

/** What to say above all else while the fleet's alarm stands. */
export function fleetAlarm(fleet) {
  if (!fleet?.alarm) return [];
  const text = `The images of all instances together no longer look like the calibration images. By proof, this happens by chance at most once in ${count(fleet.threshold)} images of the fleet on average.`;
  return [h("div", { class: "notice failure" }, icon("error"), h("div", {}, h("p", {}, h("strong", {}, "Drift alarm of the fleet. "), text)))];
}

function instances(fleet) {
  const common = commonest(fleet.instances.filter((one) => one.is_living).map(served));
  const head = h("thead", {}, h("tr", {}, HEADS.map((name) => h("th", { scope: "col", class: NUMBERS.has(name) ? "number" : "" }, name))));
  return h("table", {}, head, h("tbody", {}, fleet.instances.map((one) => row(one, served(one) !== common))));
}

function row(one, differs) {
  const mark = differs ? { class: "differs", title: "Not what most instances serve" } : {};
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, one.instance),
    h("td", mark, `v${one.version}`),
    h("td", mark, one.gate),
    h("td", { class: "number" }, count(one.num_images)),
    h("td", { class: "number" }, number(one.evidence_log10, 1), one.alarm ? " (alarm)" : ""),
    h("td", { class: "number" }, percent(one.reject_ratio)),
    h("td", { class: "number" }, number(one.psi, 2)),
    h("td", {}, one.is_living ? "now" : ago(one.seconds_ago)),
  );
}

function served(one) {
  return `${one.version} ${one.gate}`;
}

function commonest(texts) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0];
}

function ago(seconds) {
  return seconds < 5 ? "just now" : `${duration(Math.round(seconds))} ago`;
}
