// The heat map as an SVG picture, on white.

import { fixed } from "./format.js";
import { cellText, scale } from "./heatmap.js";

const [CELL_WIDTH, CELL_HEIGHT, LETTER, GAP] = [52, 24, 7, 8]; // pixels: of a cell, of a letter, margin

export function heatMapPicture(grid, metric, title) {
  const { color, low, high } = scale(grid, metric);
  const longest = (labels) => LETTER * Math.max(0, ...labels.map((label) => label.length));
  const isTall = longest(grid.columns) > CELL_WIDTH;
  const left = GAP + longest(grid.rows) + GAP;
  const top = 2 * CELL_HEIGHT + (isTall ? longest(grid.columns) : CELL_HEIGHT / 2) + GAP;
  const width = Math.max(left + CELL_WIDTH * grid.columns.length, LETTER * title.length) + GAP;
  const height = top + CELL_HEIGHT * grid.rows.length + 2 * CELL_HEIGHT;
  const x = (c) => left + CELL_WIDTH * c;
  const y = (r) => top + CELL_HEIGHT * r;
  const parts = [text(GAP, CELL_HEIGHT, title, "start", 'font-weight="bold"')];
  grid.columns.forEach((label, c) => {
    const middle = x(c) + CELL_WIDTH / 2;
    const turn = `transform="rotate(-90 ${middle + 4} ${top - GAP})"`;
    parts.push(isTall ? text(middle + 4, top - GAP, label, "start", turn) : text(middle, top - GAP, label, "middle"));
  });
  grid.rows.forEach((label, r) => {
    parts.push(text(left - GAP, y(r) + 16, label, "end"));
    grid.cells[r].forEach((cell, c) => {
      if (!cell.setting) return;
      const look = Number.isFinite(cell.mean) ? color(cell.mean) : { fill: "#eee", text: "#000" };
      parts.push(`<rect x="${x(c)}" y="${y(r)}" width="${CELL_WIDTH - 1}" height="${CELL_HEIGHT - 1}" fill="${look.fill}"/>`);
      parts.push(text(x(c) + CELL_WIDTH / 2, y(r) + 16, cellText(cell, metric), "middle", `fill="${look.text}"`));
    });
  });
  const span = `${metric.title}${metric.unit}, ${fixed(low, metric.digits)} to ${fixed(high, metric.digits)}`;
  parts.push(text(left, height - GAP, span, "start"));
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
    `font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>${parts.join("")}</svg>\n`
  );
}

function text(x, y, content, anchor, more = "") {
  const escaped = content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${x}" y="${y}" text-anchor="${anchor}" ${more}>${escaped}</text>`;
}
