// Numbers and tables as texts.

export function fixed(value, digits) {
  return Number.isFinite(value) ? value.toFixed(digits).replace("-", "−") : "–";
}

export function significant(value) {
  return Number.isFinite(value) ? String(Number(value.toPrecision(6))) : "";
}

export function csv(rows) {
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return rows.map((row) => row.map(String).map(quoted).join(",") + "\n").join("");
}

export function fileName(text) {
  return text.replace(/[^A-Za-z0-9_.-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, 100) || "fedsim";
}

// An element with attributes and children; a function as an attribute listens to the event of that name.
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(key, value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
