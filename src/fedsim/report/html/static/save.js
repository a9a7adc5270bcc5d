// Downloads and the clipboard.

import { element } from "./format.js";

export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Copies the text of an element; selects it if the browser forbids that.
export async function copy(from) {
  try {
    await navigator.clipboard.writeText(from.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(from);
    return false;
  }
}
