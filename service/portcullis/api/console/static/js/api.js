// The one way to talk to the service: adds the key, turns every refusal into a Failure with the service's own words.

import { askForKey, currentKey } from "./key.js";

/** Tells of "lost": a request found nobody. */
export const events = new EventTarget();

/** What the service, or the lack of it, answered instead of a result. */
export class Failure extends Error {
  constructor(status, code, message, requestId = null) {
    super(message);
    Object.assign(this, { status, code, requestId });
  }

  get isUnreachable() {
    return this.code === "unreachable";
  }

  /** Whether another key may help: not where the service says that the thing itself is off. */
  get wantsKey() {
    return this.status === 401 || (this.status === 403 && !/\boff\b/.test(this.message));
  }
}

/** JSON of a route; asks for a key where the service wants one and none is at hand. */
export async function getJson(path, options = {}) {
  return (await request(path, options)).json();
}

export async function getText(path, options = {}) {
  return (await request(path, options)).text();
}

/** An image as a URL that an <img> can show: fetched here, since <img> cannot send a key. */
export async function getImageUrl(path, options = {}) {
  return URL.createObjectURL(await (await request(path, options)).blob());
}

export async function sendJson(method, path, content) {
  const answer = await request(path, {
    method,
    headers: content === undefined ? {} : { "content-type": "application/json" },
    body: content === undefined ? undefined : JSON.stringify(content),
  });
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** A response that is fine, or a Failure. `ask: false` is for what runs in the background. */
export async function request(path, { ask = true, ...options } = {}) {
  const answer = await attempt(path, options);
  if (answer.status === 401 && ask) {
    const failure = await failureOf(answer);
    if (!(await askForKey(failure.message))) throw failure;
    return checked(await attempt(path, options));
  }
  return checked(answer);
}

async function attempt(path, options) {
  const key = currentKey();
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  try {
    return await fetch(path, { ...options, headers, cache: "no-cache", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    events.dispatchEvent(new Event("lost"));
    throw new Failure(0, "unreachable", "The service does not answer. It may be stopped, restarting, or out of reach.");
  }
}

async function checked(answer) {
  if (answer.ok) return answer;
  throw await failureOf(answer);
}

async function failureOf(answer) {
  try {
    const { error } = await answer.json();
    return new Failure(answer.status, error.code, error.message, error.request_id);
  } catch {
    return new Failure(answer.status, "unreadable", `The service answered with status ${answer.status} and no reason.`);
  }
}
