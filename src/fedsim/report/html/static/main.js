// The page: one state, from which everything is drawn.

import { drawControls, firstState, holdAxes, TIMES } from "./controls.js";
import { filters, grid, prepare } from "./cube.js";
import { drawDetail } from "./detail.js";
import { csv, fileName, significant } from "./format.js";
import { drawHeatMap, drawLegend } from "./heatmap.js";
import { heatMapPicture } from "./picture.js";
import { loadPlotly } from "./plots.js";
import { save } from "./save.js";
import { makeTable } from "./table.js";
import { switchTheme } from "./theme.js";
import { unpackDocument } from "./unpack.js";

const URL_KEYS = ["rows", "columns", "metric", "at", "n", "order", "held", "selected", "active"]; // in the address
const at = (id) => document.getElementById(id);

const results = prepare(await unpackDocument("data"));
let state = holdAxes(results, { ...firstState(results), ...fromAddress() });
let map = null;
const showTable = makeTable(at("table"), results, select);

describe();
at("theme").addEventListener("click", () => {
  switchTheme();
  drawDetail(at("detail"), results, state, setActive);
});
at("save-map").addEventListener("click", () => save(`${mapName()}.svg`, heatMapPicture(map, metric(), mapTitle()), "image/svg+xml"));
at("save-map-csv").addEventListener("click", () => save(`${mapName()}.csv`, csv(mapRows()), "text/csv"));
redraw();
document.body.dataset.ready = "";
setTimeout(loadPlotly, 200);

function metric() {
  return results.metricOf.get(state.metric);
}

function change(next) {
  state = holdAxes(results, { ...state, ...next });
  redraw();
}

function select(settings, isAdded) {
  const numbers = settings.map((setting) => setting.number);
  const areSelected = numbers.length > 0 && numbers.every((number) => state.selected.includes(number));
  const others = state.selected.filter((number) => !numbers.includes(number));
  const selected = !isAdded ? numbers : areSelected ? others : [...others, ...numbers];
  state = { ...state, selected: [...new Set(selected)] };
  state.active = state.selected.includes(numbers[0]) ? numbers[0] : state.selected[0] ?? null;
  redraw();
}

function setActive(number) {
  state = { ...state, active: number };
  redraw();
}

function redraw() {
  map = grid(results, state);
  drawControls(at("controls"), results, state, change);
  drawHeatMap(at("map"), map, metric(), state.selected, select, (text) => (at("status").textContent = text));
  drawLegend(at("legend"), map, metric());
  at("held-note").hidden = filters(results, state).length === 0;
  drawDetail(at("detail"), results, state, setActive);
  showTable(state.selected, new Set(map.cells.flat().filter((cell) => cell.setting).map((cell) => cell.setting.number)));
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(Object.fromEntries(URL_KEYS.map((key) => [key, state[key]]))))}`);
}

// The view in the address, as far as this page has its axes and settings.
function fromAddress() {
  try {
    const saved = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    const isKnown = {
      rows: (key) => key === "" || results.axisOf.has(key),
      columns: (key) => key === "" || results.axisOf.has(key),
      metric: (key) => results.metricOf.has(key),
      at: (key) => key in TIMES && (key !== "validation" || results.metricOf.has("validation_loss")),
      n: (n) => Number.isInteger(n) && n > 0,
      order: (key) => ["listed", "best"].includes(key),
      held: (held) => held !== null && typeof held === "object",
      selected: (selected) => Array.isArray(selected) && selected.every((number) => number in results.settings),
      active: (number) => number === null || (saved.selected ?? []).includes(number),
    };
    return Object.fromEntries(Object.entries(saved).filter(([key, value]) => isKnown[key]?.(value)));
  } catch {
    return {};
  }
}

function mapTitle() {
  const held = Object.entries(state.held).filter(([key]) => at(`held-${key}`)).map(([key]) => {
    const { options, selectedIndex } = at(`held-${key}`);
    return `${results.axisOf.get(key).title}: ${options[selectedIndex].text}`;
  });
  return [`${metric().title}${metric().unit}`, ...held].join("; ");
}

function mapName() {
  return fileName(`${results.about.name}-${state.metric}-${state.rows}-${state.columns}`);
}

function mapRows() {
  const corner = map.rowAxis?.title ?? "";
  return [[corner, ...map.columns], ...map.cells.map((line, r) => [map.rows[r], ...line.map((cell) => significant(cell.mean))])];
}

function describe() {
  const { name, folders, versions, device, num_runs, num_repeated, chosen, incomplete } = results.about;
  document.title = `${name}: fedsim report`;
  at("title").textContent = name;
  const repeated = num_repeated ? `; ${num_repeated} runs are in several folders, the first folder's are used` : "";
  at("about").textContent = `${num_runs} runs, ${results.settings.length} settings (averaged over splits and seeds)${repeated}. ${chosen} ${incomplete}`;
  at("origin").textContent = [folders.join(", "), versions, device].filter(Boolean).join(" · ");
}
