// The heat map: a table whose cells are selected with the mouse or the keyboard.

import { element, fixed } from "./format.js";
import { heat, heatGradient } from "./theme.js";

const MAX_CHARACTERS = 7; // of a column's name that is written horizontally if there are more than MAX_COLUMNS
const MAX_COLUMNS = 6;

// The smallest and largest number, and the color of each: bright is good.
export function scale(grid, metric) {
  const finite = grid.cells.flat().map((cell) => cell.mean).filter(Number.isFinite);
  const low = finite.length ? Math.min(...finite) : 0;
  const high = finite.length ? Math.max(...finite) : 1;
  const position = (value) => (high > low ? (value - low) / (high - low) : 0.5);
  return { low, high, color: (value) => heat(metric.higher_is_better ? position(value) : 1 - position(value)) };
}

export function cellText(cell, metric) {
  if (!cell.setting) return "";
  const diverged = cell.setting.num_diverged ? "†" : "";
  if (Number.isNaN(cell.mean) && diverged) return diverged;
  return fixed(cell.mean, Math.max(metric.digits - 1, 0)) + diverged + (cell.isPartial ? "*" : "");
}

// The description of a cell below the map: its setting, mean and spread.
export function describeCell(cell, metric) {
  if (!cell.setting) return "No runs";
  const { setting } = cell;
  const spread = Number.isFinite(cell.deviation) ? ` ± ${fixed(cell.deviation, metric.digits)}` : "";
  const seeds = `${setting.seeds.length} ${setting.over}${setting.seeds.length === 1 ? "" : "s"}`;
  const diverged = setting.num_diverged ? `, ${setting.num_diverged} diverged` : "";
  const among = cell.among > 1 || cell.isPartial ? `; the worst of ${cell.among}` : "";
  const partial = cell.isPartial ? ", fewer than in other rows" : "";
  return `${setting.row}, ${setting.scenario}: ${fixed(cell.mean, metric.digits)}${spread} (${seeds}${diverged}${among}${partial})`;
}

// Draws the map into `box`. `select(settings, isAdded)` is called for a cell, a row or a column; `describe(text)` on hover and focus.
export function drawHeatMap(box, grid, metric, selected, select, describe) {
  const { color } = scale(grid, metric);
  const isTall = grid.columns.length > MAX_COLUMNS && Math.max(...grid.columns.map((c) => c.length)) > MAX_CHARACTERS;
  const header = (text, r, c, scope) =>
    element("th", { scope, tabindex: -1, "data-r": r, "data-c": c, title: `${text}: select all` }, element("span", {}, text));
  const tableCell = (cell, r, c) => {
    const look = Number.isFinite(cell.mean) ? color(cell.mean) : null;
    const isSelected = cell.setting !== null && selected.includes(cell.setting.number);
    return element(
      "td",
      {
        role: "gridcell", tabindex: -1, "data-r": r, "data-c": c, "aria-selected": String(isSelected),
        "aria-label": `${grid.rows[r]}, ${grid.columns[c]}: ${cellText(cell, metric) || "none"}`,
        style: look ? `background:${look.fill};color:${look.text}` : undefined, class: cell.setting ? undefined : "empty",
      },
      cellText(cell, metric),
    );
  };
  const names = [grid.rowAxis?.title, grid.columnAxis?.title];
  const head = element(
    "tr", {}, element("td", { class: "corner" }, names[0] ?? ""),
    ...grid.columns.map((label, c) => header(label, -1, c, "col")),
  );
  const body = grid.cells.map((line, r) =>
    element("tr", {}, header(grid.rows[r], r, -1, "row"), ...line.map((cell, c) => tableCell(cell, r, c))),
  );
  const table = element(
    "table", { role: "grid", class: isTall ? "heat tall" : "heat", "aria-label": `${metric.title} by ${names.filter(Boolean).join(" and ")}`, "aria-multiselectable": "true" },
    element("thead", {}, head), element("tbody", {}, ...body),
  );
  const before = box.querySelector("[tabindex='0']")?.dataset;
  const hadFocus = box.contains(document.activeElement);
  box.replaceChildren(names[1] ? element("div", { class: "axis" }, names[1]) : "", table);
  listen(table, grid, metric, select, describe);
  const at = (r, c) => table.querySelector(`[data-r='${r}'][data-c='${c}']`);
  const first = (before && at(before.r, before.c)) ?? at(0, 0);
  if (first) first.tabIndex = 0;
  if (hadFocus) first?.focus({ preventScroll: true });
}

function listen(table, grid, metric, select, describe) {
  const positionOf = (target) => {
    const entry = target.closest("[data-r]");
    return entry && { r: Number(entry.dataset.r), c: Number(entry.dataset.c) };
  };
  const settingsAt = ({ r, c }) => {
    const line = r < 0 ? grid.cells.map((row) => row[c]) : c < 0 ? grid.cells[r] : [grid.cells[r][c]];
    return line.map((cell) => cell.setting).filter(Boolean);
  };
  const enter = (where, event) => select(settingsAt(where), event.shiftKey || event.ctrlKey || event.metaKey);
  const show = (where) => describe(where.r < 0 || where.c < 0 ? "" : describeCell(grid.cells[where.r][where.c], metric));
  const focus = (r, c) => {
    const next = table.querySelector(`[data-r='${r}'][data-c='${c}']`);
    if (!next) return;
    for (const old of table.querySelectorAll("[tabindex='0']")) old.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
  table.addEventListener("click", (event) => {
    const where = positionOf(event.target);
    if (!where) return;
    focus(where.r, where.c);
    enter(where, event);
  });
  table.addEventListener("mouseover", (event) => {
    const where = positionOf(event.target);
    if (where) show(where);
  });
  table.addEventListener("focusin", (event) => {
    const where = positionOf(event.target);
    if (where) show(where);
  });
  table.addEventListener("keydown", (event) => {
    const where = positionOf(event.target);
    if (!where) return;
    const [rows, columns] = [grid.rows.length - 1, grid.columns.length - 1];
    const targets = {
      ArrowUp: [where.r - 1, where.c], ArrowDown: [where.r + 1, where.c],
      ArrowLeft: [where.r, where.c - 1], ArrowRight: [where.r, where.c + 1],
      Home: [event.ctrlKey ? 0 : where.r, 0], End: [event.ctrlKey ? rows : where.r, columns],
      PageUp: [0, where.c], PageDown: [rows, where.c],
    };
    if (event.key in targets) focus(...targets[event.key]);
    else if (event.key === "Enter" || event.key === " ") enter(where, event);
    else if (event.key === "Escape") select([], false);
    else return;
    event.preventDefault();
  });
}

// The color bar with its smallest and largest number.
export function drawLegend(box, grid, metric) {
  const { low, high } = scale(grid, metric);
  const bar = element("span", { class: "bar", style: `background:${heatGradient(!metric.higher_is_better)}` });
  box.replaceChildren(fixed(low, metric.digits), bar, fixed(high, metric.digits), ` ${metric.title}${metric.unit}`);
}
