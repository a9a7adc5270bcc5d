"use strict";
// The state is what the heat map shows and which settings are selected; Vega draws it.

const ALL = "all", CLEAN = "Clean", WORST = "Worst", BEST = "best first";
const MAX_CURVES = 12, MAX_ROWS = 200; // that are drawn
const DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]]; // of lines of one color
const ACTIONS = { export: true, source: false, compiled: false, editor: false }; // of a chart's menu
const byId = (id) => document.getElementById(id);
const different = (values) => [...new Set(values)];
const longest = (texts) => Math.max(...texts.map((text) => text.length));
let page, state;

async function unpack(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

async function draw(name, values, chart) {
  const box = byId(name), holder = element("div");
  const [ink, pale, background] = isDark() ? ["#e6e8eb", "#3a4048", "#1d2125"] : ["#1b1f24", "#d9dde2", "#ffffff"];
  const text = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
  const axis = { ...text, gridColor: pale, domainColor: pale, tickColor: pale };
  const config = { background, axis, legend: text, view: { stroke: null } };
  const options = { config, ast: true, renderer: "svg", logLevel: 1, actions: ACTIONS, downloadFileName: name };
  box.style.minHeight = `${box.offsetHeight}px`; // nothing jumps while it is empty
  box.replaceChildren(holder);
  const { view } = await vegaEmbed(holder, { ...chart, data: { values } }, options);
  if (name === "map") view.addEventListener("click", clickMap);
  box.style.minHeight = "";
}

const chart = (name) => structuredClone(page.charts[name]);
const metric = () => page.metrics.find(({ key }) => key === state.metric);

// The heat map: its columns and rows in their order, and its cells, row by row; some are the worst of several threats.
function heatMap() {
  const { key, higher } = metric(), is = (cell, name) => state[name] === ALL || cell[name] === state[name];
  const isShown = (cell) => is(cell, "data") && (cell.threat === CLEAN || (is(cell, "share") && is(cell, "threat")));
  const name = ({ data, threat, share }) => {
    const parts = [[state.data, data], [state.threat, threat], [state.share, share]];
    return parts.filter(([held]) => held === ALL).map(([, part]) => part).join(" ").trim() || threat;
  };
  const every = [...page.settings.map((setting, number) => ({ ...setting, setting: number })), ...page.worst[key]];
  const cells = every.filter(isShown).map((cell) => ({
    ...cell, column: cell.threat === CLEAN ? name({ ...cell, share: "" }) : name(cell), ...page.settings[cell.setting].final[key],
  }));
  const goodness = (row) => {
    const values = cells.filter((cell) => cell.row === row && cell.mean !== null).map((cell) => cell.mean);
    return values.length ? ((higher ? 1 : -1) * values.reduce((a, b) => a + b)) / values.length : -Infinity;
  };
  const columns = different(cells.map((cell) => cell.column));
  const rows = page.rows.filter((row) => cells.some((cell) => cell.row === row));
  if (state.order === BEST) rows.sort((a, b) => goodness(b) - goodness(a));
  return { columns, rows, cells: cells.sort((a, b) => rows.indexOf(a.row) - rows.indexOf(b.row)) };
}

function drawMap() {
  const { columns, rows, cells } = heatMap(), { higher, label } = metric();
  const means = cells.map((cell) => cell.mean).filter((mean) => mean !== null);
  const [worst, best] = higher ? [Math.min(...means), Math.max(...means)] : [Math.max(...means), Math.min(...means)];
  for (const cell of cells) {
    const { row, scenario, runs } = page.settings[cell.setting];
    cell.level = cell.mean === null ? null : best === worst ? 1 : (cell.mean - worst) / (best - worst);
    cell.bright = cell.level === null ? !isDark() : cell.level > 0.5;
    cell.selected = state.selected.includes(cell.setting);
    cell.tip = `${row}, ${scenario}: ${cell.text} (${runs} ${runs === 1 ? "run" : "runs"})`;
  }
  const spec = chart("map"), { x, y } = spec.encoding, page_width = document.body.clientWidth;
  y.axis.labelLimit = Math.min(7 * longest(rows), 0.42 * page_width, 240);
  const room = (page_width < 900 ? 1 : 0.55) * page_width - y.axis.labelLimit - 80;
  spec.width.step = Math.min(Math.max(room / columns.length, 42), 70);
  x.axis.labelAngle = 7 * longest(columns) < spec.width.step ? 0 : -40;
  const threat = { [ALL]: "Threat", [WORST]: `Worst of ${page.threats.length} threats` }[state.threat] ?? state.threat;
  x.axis.title = state.share === ALL ? `${threat}, by share of the clients` : `${threat}, ${state.share} of the clients`;
  [x.sort, y.sort] = [columns, rows];
  byId("how").textContent = `${label}: ${page.how}`;
  if (cells.every((cell) => !cell.deviation)) spec.layer[1].mark.dy = 0;
  return draw("map", cells, spec);
}

function clickMap(event, item) {
  const name = item?.mark.role === "axis-label" && item.datum.value;
  const isMeant = (cell) => (name ? [cell.row, cell.column].includes(name) : cell.setting === item?.datum?.setting);
  select(different(heatMap().cells.filter(isMeant).map((cell) => cell.setting)), event);
}

// Selects settings; with a key pressed, adds or removes them.
function select(settings, { shiftKey, ctrlKey, metaKey }) {
  const kept = shiftKey || ctrlKey || metaKey ? state.selected : [];
  const others = kept.filter((setting) => !settings.includes(setting));
  const isRemoved = others.length && settings.every((setting) => kept.includes(setting));
  if (settings.length) update({ selected: isRemoved ? others : different([...kept, ...settings]), active: isRemoved ? others[0] : settings[0] });
}

function drawCurves() {
  const shown = state.selected.slice(0, MAX_CURVES).map((number) => page.settings[number]);
  const [first] = shown, isOne = (key) => shown.every((setting) => setting[key] === first[key]);
  const names = shown.map(({ row, scenario }) => (isOne("scenario") ? row : isOne("row") ? scenario : `${row}, ${scenario}`));
  const colors = shown.map(({ row }) => (isDark() ? page.colors[row].replace("#000000", "#e6e8eb") : page.colors[row]));
  const before = (i) => colors.slice(0, i).filter((color) => color === colors[i]).length;
  const rows = shown.flatMap(({ rounds, curves }, i) => {
    const [mean, lowest, highest] = curves[state.metric];
    const at = (t) => ({ mean: mean[t], lowest: lowest?.[t], highest: highest?.[t], alone: rounds.length === 1 });
    return rounds.map((round, t) => ({ name: names[i], color: colors[i], round, ...at(t) }));
  });
  const spec = chart("curves"), { stroke, strokeDash } = spec.layer[1].encoding;
  stroke.scale = { domain: names, range: colors };
  strokeDash.scale = { domain: names, range: colors.map((_, i) => DASHES[before(i) % DASHES.length]) };
  const room = byId("curves").clientWidth - 90, legend = { ...stroke.legend, labelLimit: room };
  legend.columns = Math.max(1, Math.floor(room / (45 + 7 * longest(names))));
  stroke.legend = strokeDash.legend = legend;
  for (const { encoding } of spec.layer) encoding.y.title = metric().label;
  byId("what").textContent = isOne("scenario") ? first.scenario : isOne("row") ? first.row : metric().label;
  byId("band").textContent = [
    rows.some(({ lowest }) => lowest !== undefined) && `Bands: lowest to highest ${page.unit}`,
    first.rounds.length < first.evaluations && `${first.rounds.length} of ${first.evaluations} evaluations`,
    shown.length < state.selected.length && `${shown.length} of ${state.selected.length} selected settings`,
  ].filter(Boolean).join("; ");
  return draw("curves", rows, spec);
}

function drawActive() {
  const { weights, row, seed, command, toml } = page.settings[state.active];
  const label = (number) => `${page.settings[number].row}, ${page.settings[number].scenario}`;
  const option = (value) => element("option", { value, selected: value === state.active }, label(value));
  byId("active").replaceChildren(...state.selected.map(option));
  byId("command").textContent = command || "No single command: run the configuration below.";
  byId("toml").textContent = toml;
  byId("weights").hidden = !weights;
  byId("clients").textContent = weights ? `Client weights, ${row}, seed ${seed}: ${weights.note}` : "";
  if (!weights) return null;
  const rows = Object.entries(weights.clients).flatMap(([client, values]) => {
    const kind = weights.corrupted.includes(client) ? "corrupted client" : "benign client";
    const isAlone = (t) => (values[t - 1] ?? values[t + 1] ?? null) === null;
    return weights.rounds.map((round, t) => ({ client, kind, round, weight: values[t], alone: isAlone(t) }));
  });
  const spec = chart("weights");
  spec.encoding.y.title = weights.label;
  return draw("weights", rows, spec);
}

// The table: the columns in which settings differ, and the settings that have all words of the search.
function drawTable() {
  const column_of = (name) => [name, (setting) => String(setting[name === "Rule" ? "row" : name.toLowerCase()])];
  const every = ["Rule", "Data", "Threat", "Share", "Runs", "Diverged"].map(column_of);
  every.push(...page.metrics.map(({ key, label }) => [label, (setting) => setting.final[key].text]));
  const columns = every.filter(([name, text]) => name === "Rule" || different(page.settings.map(text)).length > 1);
  const words = byId("find").value.toLowerCase().split(" "), { column, sign } = state.sort;
  const lines = page.settings.map((setting, number) => ({ number, texts: columns.map(([, text]) => text(setting)) }));
  const found = lines.filter(({ texts }) => words.every((word) => texts.join(" ").toLowerCase().includes(word)));
  const value = ({ texts }) => (isNaN(parseFloat(texts[column])) ? texts[column] : parseFloat(texts[column]));
  const order = (x, y) => (typeof x === typeof y ? sign * ((x > y) - (x < y)) : typeof x === "number" ? -1 : 1); // texts last
  if (column !== null) found.sort((a, b) => order(value(a), value(b)));
  const head = ([name], at) => {
    const direction = at !== column ? "none" : sign > 0 ? "ascending" : "descending";
    const onclick = () => update({ sort: { column: at, sign: at === column ? -sign : 1 } });
    return element("th", { ariaSort: direction }, element("button", { onclick }, name));
  };
  const rows = found.slice(0, MAX_ROWS).map(({ number, texts }) => {
    const className = (text) => (/^[\d–†]/.test(text) ? "number" : "");
    const cells = texts.map((text, at) => element(at ? "td" : "th", { className: at ? className(text) : "" }, text));
    const onclick = (event) => select([number], event), ariaSelected = state.selected.includes(number);
    return element("tr", { tabIndex: 0, id: `setting-${number}`, ariaSelected, onclick }, ...cells);
  });
  const focused = document.activeElement.id;
  document.querySelector("thead").replaceChildren(element("tr", {}, ...columns.map(head)));
  document.querySelector("tbody").replaceChildren(...rows);
  byId(focused)?.focus({ preventScroll: true });
  byId("count").textContent = `${rows.length} of ${lines.length}`;
}

function moveInTable(event) {
  const row = event.target.closest("tbody tr"), next = { ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key];
  if (row && event.key === "Enter") row.onclick(event);
  if (row && next) {
    event.preventDefault();
    row[next]?.focus();
  }
}

function chooser(key, label, values, names = values) {
  const options = values.map((value, i) => element("option", { value, selected: value === state[key] }, names[i]));
  const onchange = (event) => update({ [key]: event.target.value });
  if (values.length > 1) byId("choosers").append(element("label", {}, `${label} `, element("select", { id: key, onchange }, ...options)));
}

async function update(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
  drawTable();
  await drawMap(); // whose width decides that of the others
  await Promise.all([drawCurves(), drawActive()]);
}

async function start() {
  const [data, program] = await Promise.all([unpack("data"), unpack("program")]);
  document.head.append(element("script", { textContent: program }));
  page = JSON.parse(data);
  const { metrics, threats, shares } = page, all = (list, ...more) => (list.length > 1 ? [ALL, ...more, ...list] : list);
  const threat = threats.length > 1 ? (shares.length > 1 ? WORST : ALL) : threats[0] ?? ALL;
  state = { metric: metrics[0].key, threat, share: shares.length > 1 ? ALL : shares[0] ?? ALL, data: page.data[0], order: BEST, sort: { column: null } };
  const last = heatMap().cells.filter(({ column }, _, cells) => column === heatMap().columns.at(-1));
  Object.assign(state, { selected: last.map((cell) => cell.setting), active: last[0].setting });
  try { Object.assign(state, JSON.parse(decodeURIComponent(location.hash.slice(1)))); } catch { /* no view in the address */ }
  chooser("metric", "Metric", metrics.map(({ key }) => key), metrics.map(({ label }) => label));
  chooser("threat", "Threat", all(threats, WORST));
  chooser("share", "Share", all(shares));
  chooser("data", "Data", all(page.data));
  chooser("order", "Order", [BEST, "as listed"]);
  byId("facts").textContent = page.facts;
  byId("notes").textContent = page.notes.join(" ");
  byId("find").oninput = drawTable;
  byId("active").onchange = (event) => update({ active: Number(event.target.value) });
  document.onkeydown = moveInTable;
  byId("theme").onclick = () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    update();
  };
  await update();
  document.body.dataset.ready = "";
}

start();
