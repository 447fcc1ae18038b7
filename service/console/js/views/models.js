import { h } from "../dom.js";
export function modelsView() { return { root: h("section", { class: "view" }), show() {}, hide() {} }; }
