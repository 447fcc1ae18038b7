import { h } from "../dom.js";
export function reviewView() { return { root: h("section", { class: "view" }), show() {}, hide() {} }; }
