// Rows, columns, metric, and the value at which every other axis is held.

import { filters, defaultValue, WORST } from "./cube.js";
import { element } from "./format.js";

const NONE = ""; // no axis
const SCENARIO = ["threat", "data", "corruption", "attack", "fraction", "attack_fraction"]; // axes that are no keys
export const TIMES = {
  final: "last round",
  last: "mean of the last evaluations",
  validation: "best round on validation data",
  best: "best evaluation",
};
const FINAL = { last: "final", mean: "last", best: "validation" }; // as --final calls them

// The first view: rules, or the swept key with the most values, by corruption or attack, or by the share of corrupted
// clients if there is only one.
export function firstState(results) {
  const has = (key) => results.axisOf.has(key);
  const keys = results.axes.map((axis) => axis.key);
  const size = (key) => results.axisOf.get(key).values.length;
  const bySize = keys.filter((key) => !SCENARIO.includes(key)).sort((a, b) => size(b) - size(a));
  const rows = ["row", "aggregator", ...bySize, ...keys].find(has) ?? NONE;
  const determined = results.axisOf.get(rows)?.determines ?? [];
  const isMany = (key) => has(key) && size(key) > 2;
  const threats = ["threat", "attack", "corruption"];
  const free = [...bySize, ...keys].filter((key) => key !== rows && !determined.includes(key) && key !== "aggregator");
  const columns = threats.find(isMany) ?? ["fraction", ...threats, ...free].find((key) => has(key) && key !== rows) ?? NONE;
  const { final } = results.about;
  const state = { rows, columns, metric: results.metrics[0]?.key, at: FINAL[final.kind], n: final.kind === "mean" ? final.number : 5, order: "listed", held: {}, selected: [], active: null };
  return holdAxes(results, state);
}

// The state with a value for every axis that is neither row nor column.
export function holdAxes(results, state) {
  const held = {};
  for (const axis of filters(results, state)) {
    const value = state.held[axis.key];
    held[axis.key] = value === WORST || axis.values[value] !== undefined ? value : defaultValue(results, state, axis);
  }
  return { ...state, held: { ...state.held, ...held } };
}

export function drawControls(box, results, state, change) {
  const focused = box.contains(document.activeElement) ? document.activeElement.id : null;
  const axes = [[NONE, "nothing"], ...results.axes.map((axis) => [axis.key, axis.title])];
  const chooseAxis = (key, other) => (event) => {
    const value = event.target.value;
    change(value && value === state[other] ? { [key]: value, [other]: state[key] } : { [key]: value });
  };
  const set = (key) => (event) => change({ [key]: event.target.value });
  const hasValidation = results.metricOf.has("validation_loss");
  const parts = [
    choice("rows", "Rows", axes, state.rows, chooseAxis("rows", "columns")),
    choice("columns", "Columns", axes, state.columns, chooseAxis("columns", "rows")),
    choice("metric", "Metric", results.metrics.map((metric) => [metric.key, metric.title]), state.metric, set("metric")),
    choice("at", "Evaluated at", Object.entries(TIMES).filter(([at]) => at !== "validation" || hasValidation), state.at, set("at")),
    state.at === "last" ? evaluations(state, change) : null,
    choice("order", "Order of rows", [["listed", "as listed"], ["best", "best first"]], state.order, set("order")),
    ...filters(results, state).map((axis) => held(axis, state, change)),
  ];
  box.replaceChildren(...parts.filter(Boolean));
  if (focused) document.getElementById(focused)?.focus();
}

function choice(id, label, options, selected, change) {
  const entries = options.map(([value, text]) => element("option", { value, selected: String(value) === String(selected) }, text));
  return element("label", {}, element("span", {}, label), element("select", { id, change }, ...entries));
}

function evaluations(state, change) {
  const read = (event) => change({ n: Math.max(1, Math.round(Number(event.target.value)) || 1) });
  return element("label", {}, element("span", {}, "Evaluations"), element("input", { id: "n", type: "number", min: 1, value: state.n, change: read }));
}

function held(axis, state, change) {
  const options = [...axis.values.map((text, value) => [value, text]), [WORST, `worst of ${axis.values.length}`]];
  const read = (event) => {
    const value = event.target.value === WORST ? WORST : Number(event.target.value);
    change({ held: { ...state.held, [axis.key]: value } });
  };
  return choice(`held-${axis.key}`, axis.title, options, state.held[axis.key], read);
}
