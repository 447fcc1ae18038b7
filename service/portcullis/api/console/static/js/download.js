// Hands a zip of files to the browser as a download.

import { downloadZip as zip } from "../vendor/client-zip.js";

/** `files` gives {name, input, lastModified}, one after the other. */
export async function downloadZip(name, files) {
  const url = URL.createObjectURL(await zip(files).blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
