// The page: one state, and everything drawn anew from it.

import { drawControls, firstState, settle, TIMES } from "./controls.js";
import { grid, prepare } from "./cube.js";
import { drawDetail } from "./detail.js";
import { csv, fileName, significant } from "./format.js";
import { drawHeatMap, drawLegend } from "./heatmap.js";
import { heatMapPicture } from "./picture.js";
import { loadPlotly } from "./plots.js";
import { save } from "./save.js";
import { makeTable } from "./table.js";
import { switchTheme } from "./theme.js";
import { unpackDocument } from "./unpack.js";

const KEPT = ["rows", "columns", "quantity", "at", "n", "order", "held", "chosen", "active"]; // in the address
const at = (id) => document.getElementById(id);

const results = prepare(await unpackDocument("data"));
let state = settle(results, { ...firstState(results), ...fromAddress() });
let map = null;
const showTable = makeTable(at("table"), results, choose);

describe();
at("theme").addEventListener("click", () => {
  switchTheme();
  drawDetail(at("detail"), results, state, setActive);
});
at("save-map").addEventListener("click", () => save(`${mapName()}.svg`, heatMapPicture(map, quantity(), mapTitle()), "image/svg+xml"));
at("save-map-csv").addEventListener("click", () => save(`${mapName()}.csv`, csv(mapRows()), "text/csv"));
redraw();
document.body.dataset.ready = "";
setTimeout(loadPlotly, 200);

function quantity() {
  return results.quantityOf.get(state.quantity);
}

function change(next) {
  state = settle(results, { ...state, ...next });
  redraw();
}

function choose(cells, isAdded) {
  const numbers = cells.map((cell) => cell.number);
  const has = numbers.length > 0 && numbers.every((number) => state.chosen.includes(number));
  const others = state.chosen.filter((number) => !numbers.includes(number));
  const chosen = !isAdded ? numbers : has ? others : [...others, ...numbers];
  state = { ...state, chosen: [...new Set(chosen)] };
  state.active = state.chosen.includes(numbers[0]) ? numbers[0] : state.chosen[0] ?? null;
  redraw();
}

function setActive(number) {
  state = { ...state, active: number };
  redraw();
}

function redraw() {
  map = grid(results, state);
  drawControls(at("controls"), results, state, change);
  drawHeatMap(at("map"), map, quantity(), state.chosen, choose, (text) => (at("told").textContent = text));
  drawLegend(at("legend"), map, quantity());
  drawDetail(at("detail"), results, state, setActive);
  showTable(state.chosen, new Set(map.places.flat().filter((place) => place.cell).map((place) => place.cell.number)));
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(Object.fromEntries(KEPT.map((key) => [key, state[key]]))))}`);
}

// The view that the address tells, as far as this page has what it names.
function fromAddress() {
  try {
    const told = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    const isKnown = {
      rows: (key) => key === "" || results.axisOf.has(key),
      columns: (key) => key === "" || results.axisOf.has(key),
      quantity: (key) => results.quantityOf.has(key),
      at: (key) => key in TIMES && (key !== "validation" || results.quantityOf.has("validation_loss")),
      n: (n) => Number.isInteger(n) && n > 0,
      order: (key) => ["listed", "best"].includes(key),
      held: (held) => held !== null && typeof held === "object",
      chosen: (chosen) => Array.isArray(chosen) && chosen.every((number) => number in results.cells),
      active: (number) => number === null || (told.chosen ?? []).includes(number),
    };
    return Object.fromEntries(Object.entries(told).filter(([key, value]) => isKnown[key]?.(value)));
  } catch {
    return {};
  }
}

function mapTitle() {
  const held = Object.entries(state.held).filter(([key]) => at(`held-${key}`)).map(([key]) => {
    const chosen = at(`held-${key}`);
    return `${results.axisOf.get(key).title}: ${chosen.options[chosen.selectedIndex].text}`;
  });
  return [`${quantity().title}${quantity().unit}`, ...held].join("; ");
}

function mapName() {
  return fileName(`${results.about.name}-${state.quantity}-${state.rows}-${state.columns}`);
}

function mapRows() {
  const corner = map.rowAxis?.title ?? "";
  return [[corner, ...map.columns], ...map.places.map((line, r) => [map.rows[r], ...line.map((place) => significant(place.mean))])];
}

function describe() {
  const { name, folders, versions, device, num_runs, num_repeated, chosen, incomplete } = results.about;
  document.title = `${name}: fedsim report`;
  at("title").textContent = name;
  const repeated = num_repeated ? `; ${num_repeated} runs are in several folders, the first one's count` : "";
  at("about").textContent = `${num_runs} runs, ${results.cells.length} cells (runs that differ in their seed alone)${repeated}. ${chosen} ${incomplete}`;
  at("origin").textContent = [folders.join(", "), versions, device].filter(Boolean).join(" · ");
}
