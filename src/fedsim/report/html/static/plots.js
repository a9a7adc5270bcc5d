// Curves over rounds by Plotly, which is unpacked when the first one is drawn.

import { series, share } from "./cube.js";
import { save } from "./save.js";
import { isDark, line, onScale, plotColors } from "./theme.js";
import { unpackText } from "./unpack.js";

const BENIGN = { color: "#0072B2", dash: "solid" };
const BENIGN_ON_DARK = { color: "#56B4E9", dash: "solid" };
const CORRUPTED = { color: "#D55E00", dash: "dash" };
const SAVED = { width: 760, height: 460 }; // pixels of a picture

let loading = null;

export function loadPlotly() {
  loading ??= unpackText("plotly").then((program) => {
    const script = document.createElement("script");
    script.textContent = program;
    document.head.append(script);
  });
  return loading;
}

// Draws a figure, which is a function of whether it is dark: {data, layout}.
export async function draw(box, figure) {
  await loadPlotly();
  const { data, layout } = figure(isDark());
  await Plotly.react(box, data, layout, { responsive: true, displaylogo: false, displayModeBar: false });
}

export async function savePicture(name, figure) {
  await loadPlotly();
  const url = await Plotly.toImage(figure(false), { format: "svg", ...SAVED });
  save(name, decodeURIComponent(url.slice(url.indexOf(",") + 1)), "image/svg+xml");
}

// The mean over splits, or over the seeds of one, with a band from the lowest to the highest; a line a setting.
export function curves(results, metric, settings) {
  return (dark) => {
    const isOne = (key) => new Set(settings.map((setting) => setting[key])).size === 1;
    const ranks = ranksOf(results, settings);
    const data = settings.flatMap((setting, position) => {
      const look = ranks ? onScale(ranks[position] / (settings.length - 1), dark) : line(results.colors, position, dark);
      const name = isOne("scenario") ? setting.row : isOne("row") ? setting.scenario : `${setting.row}, ${setting.scenario}`;
      return settingTraces(setting, series(metric, setting), { ...look, name });
    });
    return { data, layout: layout(dark, `${metric.title}${metric.unit}`, settings.length > 1) };
  };
}

// The rank of each of more settings than colors that differ in one number only; null for others.
function ranksOf(results, settings) {
  if (settings.length <= results.colors.length) return null;
  const differ = results.axes.filter((axis) => axis.key !== "row" && new Set(settings.map((s) => axis.codes[s.number])).size > 1);
  const isNumber = (axis) => axis.values.every((value) => Number.isFinite(Number(value.replace(" %", ""))));
  if (differ.length !== 1 || !isNumber(differ[0])) return null;
  const codes = settings.map((setting) => differ[0].codes[setting.number]);
  return codes.map((code) => codes.filter((other) => other < code).length);
}

function settingTraces(setting, runs, { color, dash, name }) {
  const points = setting.x.map((round, t) => {
    const finite = runs.map((run) => run[t]).filter(Number.isFinite);
    return { round, finite, mean: finite.length ? finite.reduce((a, b) => a + b) / finite.length : null };
  });
  const known = points.filter((point) => point.finite.length);
  const x = [...known.map((point) => point.round), ...known.map((point) => point.round).reverse()];
  const y = [...known.map((point) => Math.max(...point.finite)), ...known.map((point) => Math.min(...point.finite)).reverse()];
  const group = { legendgroup: String(setting.number), name };
  const band = { ...group, x, y, fill: "toself", fillcolor: color, opacity: 0.15, line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false };
  const middle = { ...group, x: setting.x, y: points.map((point) => point.mean), mode: points.length > 1 ? "lines" : "markers", line: { color, dash, width: 2 }, marker: { color } };
  return runs.length > 1 ? [band, middle] : [middle];
}

// A line a client, the corrupted ones dashed and on top.
export function clientWeights(weights) {
  const clients = weights.clients.map((id, column) => ({ id, column, isCorrupted: weights.corrupted[column] }));
  clients.sort((a, b) => a.isCorrupted - b.isCorrupted);
  const isFirst = (client) => clients.find((other) => other.isCorrupted === client.isCorrupted) === client;
  return (dark) => {
    const data = clients.map((client) => {
      const kind = client.isCorrupted ? "corrupted client" : "benign client";
      const y = weights.rounds.map((_, row) => 100 * share(weights.shares[row * clients.length + client.column]));
      const look = client.isCorrupted ? CORRUPTED : dark ? BENIGN_ON_DARK : BENIGN;
      return {
        x: weights.rounds, y: y.map((value) => (Number.isFinite(value) ? value : null)), mode: "lines", connectgaps: true,
        line: { ...look, width: 1.2 }, opacity: 0.8, name: kind, legendgroup: kind, showlegend: isFirst(client),
        hovertemplate: `client ${client.id} (${client.isCorrupted ? "corrupted" : "benign"}): %{y:.2f} %<extra></extra>`,
      };
    });
    const title = weights.kind === "alpha" ? "Weight α among all clients (%)" : "Weight in the round (%)";
    const base = layout(dark, title, true);
    return { data, layout: { ...base, hovermode: "closest", yaxis: { ...base.yaxis, rangemode: "tozero" } } };
  };
}

function layout(dark, title, showlegend) {
  const { ink, pale } = plotColors(dark);
  const axis = { gridcolor: pale, linecolor: pale, zeroline: false, automargin: true };
  return {
    xaxis: { ...axis, title: { text: "Round" }, tickformat: "d" },
    yaxis: { ...axis, title: { text: title } },
    font: { color: ink, family: "system-ui, sans-serif", size: 12 },
    paper_bgcolor: dark ? "rgba(0,0,0,0)" : "#ffffff",
    plot_bgcolor: "rgba(0,0,0,0)",
    hoverlabel: { bgcolor: dark ? "#22262b" : "#ffffff", font: { color: ink } },
    hovermode: "x unified",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    margin: { l: 56, r: 12, t: 12, b: 48 },
    showlegend,
  };
}
