// Shows a refusal where it happened, in the service's own words.

import { h, icon } from "./dom.js";
import { askForKey, currentKey } from "./key.js";

/** A panel for a failure; with a way to give another key where that is what is missing. */
export function failurePanel(failure, retry = null) {
  return h(
    "div",
    { class: isOnlyMissingKey(failure) ? "notice" : "notice failure", role: "alert" },
    isOnlyMissingKey(failure) ? null : icon("error"),
    h(
      "div",
      {},
      h("p", {}, failure.message),
      failure.requestId ? h("p", { class: "small" }, `${failure.code} · request ${failure.requestId}`) : null,
      h("div", { class: "actions" }, failure.wantsKey ? keyButton(failure, retry) : retryButton(retry)),
    ),
  );
}

function keyButton(failure, retry) {
  const useAnother = async () => (await askForKey(failure.message)) && retry?.();
  return h("button", { type: "button", on: { click: useAnother } }, currentKey() ? "Use another key" : "Enter a key");
}

/** To be asked for a key is no fault; to be refused with one is. */
function isOnlyMissingKey(failure) {
  return failure.status === 401;
}

function retryButton(retry) {
  return retry ? h("button", { type: "button", on: { click: retry } }, "Try again") : null;
}
