// The selected settings: curves, weights of clients, command and configuration.

import { element, fileName, fixed } from "./format.js";
import { numbers } from "./cube.js";
import { clientWeights, curves, draw, savePicture } from "./plots.js";
import { copy, save } from "./save.js";

const MAX_CURVES = 12;

export function drawDetail(box, results, state, setActive) {
  const settings = state.selected.map((number) => results.settings[number]);
  if (!settings.length) {
    box.replaceChildren(element("p", { class: "hint" }, "Select a setting to see its curves, client weights, command and configuration. Shift+click or Shift+Enter adds another one; the name of a row or column selects all of its settings."));
    return;
  }
  const active = results.settings[state.active];
  const shown = settings.slice(0, MAX_CURVES);
  const metric = results.metricOf.get(state.metric);
  const figure = curves(results, metric, shown);
  const name = fileName(settings.length > 1 ? `${results.about.name}-${metric.key}` : `${active.row}-${active.scenario}-${metric.key}`);
  const chart = element("div", { class: "chart", id: "curves" });
  const parts = [
    settings.length > 1 ? settingChooser(settings, active, setActive) : element("h3", {}, `${active.row}, ${active.scenario}`),
    numberLine(results, state, active, metric),
    chart,
    element("p", { class: "note" }, note(shown, settings)),
    element("button", { click: () => savePicture(`${name}.svg`, figure), id: "save-curves" }, "Download SVG"),
    ...clientSection(results, active),
    ...rerunSection(active),
  ];
  box.replaceChildren(...parts);
  draw(chart, figure);
}

function settingChooser(settings, active, setActive) {
  const options = settings.map((setting) =>
    element("option", { value: setting.number, selected: setting === active }, `${setting.row}, ${setting.scenario}`),
  );
  const select = element("select", { id: "active", change: (event) => setActive(Number(event.target.value)) }, ...options);
  return element("label", {}, `${settings.length} settings; details of `, select);
}

function numberLine(results, state, setting, metric) {
  const { mean, deviation, count } = numbers(results, state)[setting.number];
  const spread = Number.isFinite(deviation) ? ` ± ${fixed(deviation, metric.digits)}` : "";
  const diverged = setting.num_diverged ? `; ${setting.num_diverged} diverged` : "";
  const seeds = `${count} of ${setting.seeds.length} ${setting.over}${setting.seeds.length === 1 ? "" : "s"}`;
  return element("p", {}, element("b", {}, `${fixed(mean, metric.digits)}${spread}`), ` ${metric.title}${metric.unit}, mean ± standard deviation of ${seeds}${diverged}`);
}

function note(shown, settings) {
  const cut = shown.length < settings.length ? ` ${shown.length} of ${settings.length} settings are shown.` : "";
  return `Line: mean over splits, or over the seeds of one; band: from the lowest to the highest.${cut}`;
}

function clientSection(results, setting) {
  const weights = results.weights.find((weights) => weights.setting === setting.number);
  if (!weights) return [element("p", { class: "note" }, "Client weights were not recorded.")];
  const figure = clientWeights(weights);
  const chart = element("div", { class: "chart", id: "clients" });
  const cuts = [
    [weights.rounds.length, weights.num_rounds, "rounds"],
    [weights.clients.length, weights.num_clients, "clients"],
  ].filter(([some, all]) => some < all).map(([some, all, what]) => `${some} of ${all} ${what}`);
  const text = `Client weights, ${setting.row}, ${setting.scenario}, ${setting.over} ${setting.seeds[0]}${cuts.length ? `: ${cuts.join(" and ")}` : ""}.`;
  draw(chart, figure);
  const name = fileName(`${setting.row}-${setting.scenario}-clients`);
  return [
    element("h3", {}, "Client weights"), chart, element("p", { class: "note" }, text),
    element("button", { click: () => savePicture(`${name}.svg`, figure) }, "Download SVG"),
  ];
}

function rerunSection(setting) {
  const configuration = element("pre", { id: "configuration", tabindex: 0 }, setting.configuration);
  const command = element("pre", { id: "command", tabindex: 0 }, setting.command);
  const name = `${fileName(`${setting.row}-${setting.scenario}`)}.toml`;
  const copier = (from) => element("button", { click: async (event) => {
    const { target } = event;
    target.textContent = (await copy(from)) ? "Copied" : "Selected";
  } }, "Copy");
  return [
    element("h3", {}, "Run again"),
    ...(setting.command ? [command, copier(command)] : [element("p", { class: "note" }, "No single command runs this setting; use its configuration.")]),
    element("details", {}, element("summary", {}, "Configuration"), configuration, copier(configuration), " ",
      element("button", { click: () => save(name, setting.configuration, "application/toml") }, "Download TOML")),
  ];
}
