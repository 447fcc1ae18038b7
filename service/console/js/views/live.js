import { h } from "../dom.js";
export function liveView() { return { root: h("section", { class: "view" }), show() {}, hide() {} }; }
