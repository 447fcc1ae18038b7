// Builds elements. Text is always text: nothing here turns a string into markup.

const SVG = "http://www.w3.org/2000/svg";

/** h("p", {class: "small", on: {click}}, "text", child): an element with its attributes and children. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "vars") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name in element && typeof value === "boolean") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PATHS = {
  accept: "M3.5 8.5l3 3 6-7",
  reject: "M4 4l8 8M12 4l-8 8",
  error: "M8 4v5M8 11.8v.4",
  image: "M2.5 3.5h11v9h-11zM2.5 11l3.5-3.5 3 3 1.5-1.5 3 3",
  upload: "M8 11V3M4.5 6.5L8 3l3.5 3.5M3 13h10",
};

/** A small drawing beside a word, never instead of one. */
export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", class: `icon icon-${name}`, "aria-hidden": "true" }))
    drawing.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  drawing.append(path);
  return drawing;
}

/** The verdict by shape and word; the colour only repeats it. */
export function verdictBadge(verdict, reason = null) {
  return h("span", { class: `verdict ${verdict}` }, icon(verdict), reason ? `${verdict}: ${reason}` : verdict);
}

/** Swap the whole content of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Say something to screen readers without moving the focus. */
export function announce(text) {
  const region = document.getElementById("announcer");
  region.textContent = "";
  requestAnimationFrame(() => (region.textContent = text));
}
