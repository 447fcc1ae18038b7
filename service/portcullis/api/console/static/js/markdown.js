// A report's Markdown as elements: headings, paragraphs, lists, tables, images, bold, code. Never as markup.

import { h } from "./dom.js";

const INLINE = /!\[([^\]]*)\]\(([^)\s]+)\)|\[([^\]]+)\]\(([^)\s]+)\)|\*\*([^*]+)\*\*|`([^`]+)`/g;

/** `showImage(source, text)` gives the element for an image; `level` is added to every heading's. */
export function renderMarkdown(text, showImage, level = 1) {
  return blocksOf(text).map((lines) => renderBlock(lines, showImage, level));
}

function blocksOf(text) {
  return text
    .split(/\n\s*\n/)
    .map((block) => block.split("\n").filter((line) => line.trim()))
    .filter((lines) => lines.length > 0);
}

function renderBlock(lines, showImage, level) {
  const inline = (text) => renderInline(text, showImage);
  const heading = lines[0].match(/^(#{1,5})\s+(.*)$/);
  if (heading) {
    const title = h(`h${Math.min(6, heading[1].length + level)}`, {}, inline(heading[2]));
    return lines.length === 1 ? title : h("div", {}, title, renderBlock(lines.slice(1), showImage, level));
  }
  if (lines.length > 1 && lines[0].startsWith("|") && /^\|[\s:|-]+\|?$/.test(lines[1])) return renderTable(lines, inline);
  if (lines.every((line) => /^\s*[-*] /.test(line))) return h("ul", {}, lines.map((line) => h("li", {}, inline(line.replace(/^\s*[-*] /, "")))));
  return h("p", {}, inline(lines.join(" ")));
}

function renderTable(lines, inline) {
  const cells = (line) => line.replace(/^\||\|\s*$/g, "").split("|").map((cell) => cell.trim());
  const row = (line) =>
    h("tr", {}, cells(line).map((cell, index) => (index === 0 ? h("th", { scope: "row" }, inline(cell)) : h("td", {}, inline(cell)))));
  const head = h("thead", {}, h("tr", {}, cells(lines[0]).map((cell) => h("th", { scope: "col" }, inline(cell)))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${cells(lines[0]).join(", ")}` }, h("table", {}, head, h("tbody", {}, lines.slice(2).map(row))));
}

function renderInline(text, showImage) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(INLINE)) {
    parts.push(text.slice(end, match.index));
    end = match.index + match[0].length;
    const [, imageText, source, linkText, , bold, code] = match;
    if (source !== undefined) parts.push(showImage(source, imageText));
    // A report is data: where its links lead is not ours to vouch for, so only their words are shown.
    else if (linkText !== undefined) parts.push(linkText);
    else parts.push(bold !== undefined ? h("strong", {}, bold) : h("code", {}, code));
  }
  parts.push(text.slice(end));
  return parts.filter((part) => part !== "");
}
