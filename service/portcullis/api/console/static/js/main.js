// Starts the console: routes the hash to a view, watches whether the service answers.

import { events, request } from "./api.js";
import { setUpCharts } from "./charts.js";
import { fill, h } from "./dom.js";
import { failurePanel } from "./failures.js";
import { setUpKey } from "./key.js";
import { Session } from "./session.js";
import { gateView } from "./views/gate.js";
import { liveView } from "./views/live.js";
import { modelsView } from "./views/models.js";
import { reviewView } from "./views/review.js";
import { tryView } from "./views/try.js";

const HEALTH_SECONDS = 2;
const main = document.getElementById("main");
const session = new Session();
const views = { try: tryView, gate: gateView, live: liveView, models: modelsView, review: reviewView };
const opened = new Map();
const trouble = h("div", {});
const nothing = h("div", { class: "sheet blank", hidden: true }, h("h2", {}, "No model is served"), h("p", {}, "Load one in ", h("a", { href: "#models" }, "Models"), "."));
let shown = null;
let hadModel = false;
let isChecking = false;

async function start() {
  main.append(trouble, nothing);
  setUpCharts();
  setUpKey(load);
  addEventListener("hashchange", show);
  document.getElementById("model").addEventListener("change", (event) => session.choose(event.target.value));
  session.addEventListener("models", fillChoice);
  events.addEventListener("lost", checkHealth);
  setInterval(checkHealth, 1000 * HEALTH_SECONDS);
  checkHealth();
  await load();
}

/** Read what is served, then show the view; until then say why there is nothing. */
async function load() {
  try {
    await session.refresh();
  } catch (failure) {
    hideShown();
    fill(trouble, failurePanel(failure, load));
    return;
  }
  fill(trouble);
  show();
}

function show() {
  const name = location.hash.slice(1) in views ? location.hash.slice(1) : "try";
  showNothing(!session.model && name !== "models");
  if (!nothing.hidden) hideShown();
  else showView(name);
  for (const link of document.querySelectorAll(".tabs a"))
    link.hash === `#${name}` ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  document.title = `${name[0].toUpperCase()}${name.slice(1)} · Portcullis`;
}

function showView(name) {
  if (!opened.has(name)) {
    opened.set(name, views[name](session));
    main.append(opened.get(name).root);
  }
  if (shown !== name) hideShown();
  shown = name;
  for (const [other, view] of opened) view.root.hidden = other !== name;
  opened.get(name).show();
}

function hideShown() {
  opened.get(shown)?.hide();
  for (const view of opened.values()) view.root.hidden = true;
  shown = null;
}

/** Every model may be unloaded while the page is open; only the Models view has anything to say then. */
function showNothing(isNothing) {
  nothing.hidden = !isNothing;
}

function fillChoice() {
  const choice = document.getElementById("model");
  const options = session.models.map((model) =>
    h("option", { value: model.name, selected: model.name === session.model?.name }, `${model.name} · v${model.default_version}`),
  );
  fill(choice, options);
  if (hadModel && !session.model) show();
  hadModel = session.model !== null;
}

/** One lost request may be its own fault; the service is gone when its health route is. */
async function checkHealth() {
  if (document.hidden || isChecking) return;
  isChecking = true;
  try {
    await request("/readyz", { ask: false, signal: AbortSignal.timeout(5000) });
    setHealth("ready");
  } catch (failure) {
    setHealth(failure.status === 503 ? "not ready" : "unreachable");
  } finally {
    isChecking = false;
  }
}

function setHealth(health) {
  const badge = document.getElementById("health");
  if (badge.dataset.health === health) return;
  const wasDown = badge.dataset.health === "unreachable";
  badge.dataset.health = health;
  fill(badge, h("span", { class: "dot" }), health);
  const outage = document.getElementById("outage");
  outage.hidden = health === "ready";
  outage.textContent =
    health === "not ready"
      ? "The service is starting or draining; it takes no new images just now."
      : "The service does not answer. It may be stopped or out of reach. This page keeps asking and goes on by itself once it answers.";
  if (wasDown && health === "ready") load();
}

start();
