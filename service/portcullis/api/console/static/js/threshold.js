// The handle that drags a threshold over a chart: by pointer or by arrow keys, announced as a slider.

import { h } from "./dom.js";

const STEPS = 400;
const LEAPS = 20;

/** A slider laid over `chart`; `describe(value)` says in words what a value means. */
export class ThresholdHandle {
  constructor(wrapper, chart, { value, describe, onChange }) {
    Object.assign(this, { wrapper, chart, value, describe, onChange });
    this.element = h("div", {
      class: "handle",
      role: "slider",
      tabindex: "0",
      "aria-label": "Threshold",
      "aria-orientation": "horizontal",
      on: { keydown: (event) => this.#press(event), pointerdown: (event) => this.#grab(event) },
    });
    wrapper.append(this.element);
    wrapper.addEventListener("pointerdown", (event) => event.target.closest(".u-over") && this.#grab(event));
    this.observer = new ResizeObserver(() => requestAnimationFrame(() => this.place()));
    this.observer.observe(wrapper);
  }

  /** Set from outside; does not call onChange. */
  set(value) {
    this.value = value;
    this.place();
  }

  place() {
    const plot = this.chart.plot;
    if (plot === null) return;
    const { min, max } = plot.scales.x;
    const over = plot.over.getBoundingClientRect();
    const frame = this.wrapper.getBoundingClientRect();
    const x = Math.min(over.width, Math.max(0, plot.valToPos(this.value, "x")));
    this.element.style.setProperty("--x", `${over.left - frame.left + x}px`);
    this.element.style.setProperty("--top", `${over.top - frame.top}px`);
    this.element.style.setProperty("--height", `${over.height}px`);
    this.element.setAttribute("aria-valuemin", min);
    this.element.setAttribute("aria-valuemax", max);
    this.element.setAttribute("aria-valuenow", Math.min(max, Math.max(min, this.value)));
    this.element.setAttribute("aria-valuetext", this.describe(this.value));
  }

  destroy() {
    this.observer.disconnect();
    this.element.remove();
  }

  #move(value) {
    const { min, max } = this.chart.plot.scales.x;
    this.set(Math.min(max, Math.max(min, value)));
    this.onChange(this.value);
  }

  #press(event) {
    const { min, max } = this.chart.plot.scales.x;
    const step = (max - min) / STEPS;
    const moves = {
      ArrowRight: step,
      ArrowUp: step,
      ArrowLeft: -step,
      ArrowDown: -step,
      PageUp: step * LEAPS,
      PageDown: -step * LEAPS,
      Home: -Infinity,
      End: Infinity,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.#move(this.value + moves[event.key]);
  }

  #grab(event) {
    event.preventDefault();
    this.element.focus();
    const plot = this.chart.plot;
    const follow = ({ clientX }) => this.#move(plot.posToVal(clientX - plot.over.getBoundingClientRect().left, "x"));
    const release = new AbortController();
    addEventListener("pointermove", follow, { signal: release.signal });
    addEventListener("pointerup", () => release.abort(), { signal: release.signal });
    addEventListener("pointercancel", () => release.abort(), { signal: release.signal });
    follow(event);
  }
}
