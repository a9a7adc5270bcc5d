// The state is what the heat map shows and which settings are selected; Vega draws it.

const ALL = "all", CLEAN = "Clean", WORST = "Worst", BEST = "best first";
const MAX_CURVES = 12, MAX_ROWS = 200; // that are drawn
const MAX_LINEAR = 30; // a loss that rises by more has a logarithmic axis
const DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]]; // of lines of one color
const ACTIONS = { export: true, source: false, compiled: false, editor: false }; // of a chart's menu
const byId = (id) => document.getElementById(id);
const different = (values) => [...new Set(values)];
const longest = (texts) => Math.max(0, ...texts.map((text) => text.length));
const drawn = {}; // charts by name
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

async function draw(name, chart) {
  const box = byId(name), holder = element("div");
  const [ink, pale, background] = isDark() ? ["#e6e8eb", "#3a4048", "#1d2125"] : ["#1b1f24", "#d9dde2", "#ffffff"];
  const text = { labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" };
  const axis = { ...text, gridColor: pale, domainColor: pale, tickColor: pale };
  const config = { background, axis, legend: text, view: { stroke: null } };
  const options = { config, ast: true, renderer: "svg", logLevel: 1, actions: ACTIONS, downloadFileName: name };
  if (name === "map") options.patch = withClickableNames;
  box.style.minHeight = `${box.offsetHeight}px`; // nothing jumps while it is empty
  box.replaceChildren(holder);
  drawn[name]?.finalize();
  drawn[name] = await vegaEmbed(holder, chart, options);
  if (name === "map") drawn.map.view.addEventListener("click", clickMap);
  box.style.minHeight = "";
}

const metric = () => page.metrics.find(({ key }) => key === state.metric);

// The columns and rows of the heat map in their order, and its cells row by row, with the worst of several threats.
function chosenCells() {
  const { key, higher } = metric(), is = (cell, name) => state[name] === ALL || cell[name] === state[name];
  const isShown = (cell) => is(cell, "data") && (cell.threat === CLEAN || (is(cell, "share") && is(cell, "threat")));
  const name = ({ data, threat, share }) => {
    const parts = [[state.data, data], [state.threat, threat], [state.share, share]];
    return parts.filter(([held, part]) => held === ALL || part === CLEAN).map(([, part]) => part).join(" ").trim() || threat;
  };
  const every = [...page.settings.map((setting, number) => ({ ...setting, setting: number })), ...page.worst[key]];
  const shown = every.filter(isShown);
  const cells = shown.map((cell) => ({ ...cell, ...page.settings[cell.setting].final[key], column: name(cell) }));
  const goodness = (row) => {
    const values = cells.filter((cell) => cell.row === row && cell.mean !== null).map((cell) => cell.mean);
    return values.length ? ((higher ? 1 : -1) * values.reduce((a, b) => a + b)) / values.length : -Infinity;
  };
  const columns = different(cells.map((cell) => cell.column));
  const rows = page.rows.filter((row) => cells.some((cell) => cell.row === row));
  const failures = (row) => cells.filter((cell) => cell.row === row && cell.text.includes("†")).length;
  if (state.order === BEST) rows.sort((a, b) => failures(a) - failures(b) || goodness(b) - goodness(a));
  return { columns, rows, cells: cells.sort((a, b) => rows.indexOf(a.row) - rows.indexOf(b.row)) };
}

function drawMap() {
  const { columns, rows, cells } = chosenCells(), { higher, label, log, how } = metric();
  const isLog = log && cells.every(({ mean }) => mean === null || mean >= 0);
  const scaled = (mean) => (isLog ? Math.log(Math.max(mean, 1e-9)) : mean);
  const means = cells.filter(({ mean }) => mean !== null).map(({ mean }) => scaled(mean));
  const [worst, best] = higher ? [Math.min(...means), Math.max(...means)] : [Math.max(...means), Math.min(...means)];
  for (const cell of cells) {
    const { row, scenario, runs } = page.settings[cell.setting];
    cell.level = cell.mean === null ? null : best === worst ? 1 : (scaled(cell.mean) - worst) / (best - worst);
    cell.bright = cell.level === null ? !isDark() : cell.level > 0.5;
    cell.selected = state.selected.includes(cell.setting);
    if (cell.among < cell.most) cell.short += "*"; // without threats of other rows
    cell.tip = `${row}, ${scenario}: ${cell.text} (${runs} ${runs === 1 ? "run" : "runs"})`;
  }
  const pageWidth = document.body.clientWidth, limit = Math.min(8 * longest(rows) + 12, 0.42 * pageWidth, 240);
  const room = (pageWidth < 900 ? 1 : 0.55) * pageWidth - limit - 80;
  const step = Math.max(Math.min(Math.max(room / columns.length, 42), 70), 8 * longest(cells.map(({ short }) => short)));
  const most = Math.max(0, ...cells.map(({ among }) => among ?? 0));
  const threat = { [ALL]: "Threat", [WORST]: `Worst of ${most} threats` }[state.threat] ?? state.threat;
  const share = state.share === ALL ? "by share" : state.share;
  const title = page.threats.length ? `${threat}, ${share} of clients` : null;
  const isChosen = cells.some((cell) => cell.threat === WORST);
  const chosen = isChosen ? `; the worst is ${page.choice}` : "";
  byId("how").textContent = cells.length ? `${label}: ${how}${chosen}` : "No setting has these choices.";
  return draw("map", heatMap({ columns, rows, cells, title, step, limit }));
}

function clickMap(event, item) {
  const name = item?.mark.role === "axis-label" && item.datum.value;
  const isMeant = (cell) => (name ? [cell.row, cell.column].includes(name) : cell.setting === item?.datum?.setting);
  select(different(chosenCells().cells.filter(isMeant).map((cell) => cell.setting)), event);
}

// Selects settings; with a key pressed, adds or removes them.
function select(settings, { shiftKey, ctrlKey, metaKey }) {
  const kept = shiftKey || ctrlKey || metaKey ? state.selected : [];
  const others = kept.filter((setting) => !settings.includes(setting));
  const isRemoved = others.length && settings.every((setting) => kept.includes(setting));
  const selected = isRemoved ? others : different([...kept, ...settings]);
  if (settings.length) update({ selected, active: isRemoved ? others[0] : settings[0] });
}

function drawCurves() {
  const shown = state.selected.slice(0, MAX_CURVES).map((number) => page.settings[number]);
  const [first] = shown, isOne = (key) => shown.every((setting) => setting[key] === first[key]);
  const name = ({ row, scenario }) => (isOne("scenario") ? row : isOne("row") ? scenario : `${row}, ${scenario}`);
  const names = shown.map(name);
  const colors = shown.map(({ row }) => (isDark() ? page.colors[row].replace("#000000", "#e6e8eb") : page.colors[row]));
  const before = (i) => colors.slice(0, i).filter((color) => color === colors[i]).length;
  const { key, label: title, log } = first.curves[state.metric] ? metric() : page.metrics[0]; // some have no curves
  const values = shown.flatMap(({ rounds, curves: lines }, i) => {
    const [mean, lowest, highest] = lines[key];
    const at = (t) => ({ mean: mean[t], lowest: lowest?.[t], highest: highest?.[t], alone: rounds.length === 1 });
    return rounds.map((round, t) => ({ name: names[i], color: colors[i], round, ...at(t) }));
  });
  const dashes = colors.map((_, i) => DASHES[before(i) % DASHES.length]);
  const width = byId("curves").clientWidth - 40;
  const means = values.flatMap(({ mean, lowest }) => [mean, lowest ?? mean]).filter(Number.isFinite);
  const least = Math.min(...means), type = log && least > 0 && Math.max(...means) > MAX_LINEAR * least ? "log" : "linear";
  byId("what").textContent = isOne("scenario") ? first.scenario : isOne("row") ? first.row : title;
  byId("band").textContent = [
    values.some(({ lowest }) => lowest !== undefined) && `Bands: lowest to highest ${page.unit}`,
    first.rounds.length < first.evaluations && `${first.rounds.length} of ${first.evaluations} evaluations`,
    shown.length < state.selected.length && `${shown.length} of ${state.selected.length} selected settings`,
  ].filter(Boolean).join("; ");
  return draw("curves", curves({ values, names, colors, dashes, title, type, width }));
}

function drawActive() {
  const { weights, row, draw: of, command, toml } = page.settings[state.active];
  const label = (number) => `${page.settings[number].row}, ${page.settings[number].scenario}`;
  const option = (value) => element("option", { value, selected: value === state.active }, label(value));
  byId("active").replaceChildren(...state.selected.map(option));
  byId("command").textContent = command || "No single command: run the configuration below, with its data if they were in memory.";
  byId("toml").textContent = toml;
  byId("weights").hidden = !weights;
  byId("clients").textContent = weights ? `Client weights, ${row}, ${of}: ${weights.note}` : "";
  if (!weights) return null;
  const rows = Object.entries(weights.clients).flatMap(([client, values]) => {
    const [kind, color] = weights.byzantine.includes(client) ? BYZANTINE : BENIGN;
    const isAlone = (t) => (values[t - 1] ?? values[t + 1] ?? null) === null;
    return weights.rounds.map((round, t) => ({ client, kind, color, round, weight: values[t], alone: isAlone(t) }));
  });
  return draw("weights", clientWeights(rows, weights.label));
}

// The table: metrics, other columns in which settings differ, and the settings that have all words of the search.
function drawTable() {
  const columnOf = (name) => [name, (setting) => String(setting[name === "Rule" ? "row" : name.toLowerCase()])];
  const differs = ([name, text]) => name === "Rule" || different(page.settings.map(text)).length > 1;
  const columns = ["Rule", "Data", "Threat", "Share", "Runs", "Diverged"].map(columnOf).filter(differs);
  columns.push(...page.metrics.map(({ key, label }) => [label, (setting) => setting.final[key].text]));
  const words = byId("find").value.toLowerCase().split(" "), { column, sign } = state.sort;
  const lines = page.settings.map((setting, number) => ({ number, texts: columns.map(([, text]) => text(setting)) }));
  const found = lines.filter(({ texts }) => words.every((word) => texts.join(" ").toLowerCase().includes(word)));
  const value = ({ texts }) => (isNaN(parseFloat(texts[column])) ? texts[column] : parseFloat(texts[column]));
  const isNumber = (x) => typeof x === "number"; // before texts, whatever the sign
  const order = (x, y) => (isNumber(x) === isNumber(y) ? sign * ((x > y) - (x < y)) : isNumber(x) ? -1 : 1);
  if (column !== null) found.sort((a, b) => order(value(a), value(b)));
  const head = ([name], at) => {
    const direction = at !== column ? "none" : sign > 0 ? "ascending" : "descending";
    const onclick = () => update({ sort: { column: at, sign: at === column ? -sign : 1 } });
    return element("th", { ariaSort: direction }, element("button", { id: `column-${at}`, onclick }, name));
  };
  const rows = found.slice(0, MAX_ROWS).map(({ number, texts }) => {
    const className = (text) => (/^[\d–†‡]/.test(text) ? "number" : "");
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
  const row = event.target.closest("tbody tr");
  const next = { ArrowDown: "nextSibling", ArrowUp: "previousSibling" }[event.key];
  if (row && event.key === "Enter") row.onclick(event);
  if (row && next) {
    event.preventDefault();
    row[next]?.focus();
  }
}

function chooser(key, label, values, names = values) {
  const options = values.map((value, i) => element("option", { value, selected: value === state[key] }, names[i]));
  const onchange = (event) => update({ [key]: event.target.value });
  const box = element("select", { id: key, onchange }, ...options);
  if (values.length > 1) byId("choosers").append(element("label", {}, `${label} `, box));
}

async function update(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
  drawTable();
  await drawMap(); // whose width decides that of the others
  await Promise.all([drawCurves(), drawActive()]);
}

async function start() {
  const [text, program] = await Promise.all([unpack("data"), unpack("program")]);
  document.head.append(element("script", { textContent: program }));
  page = JSON.parse(text);
  const { metrics, threats, shares, data } = page;
  const several = (list, choice) => (list.length > 1 ? choice : list[0] ?? ALL);
  const all = (list, ...more) => (list.length > 1 ? [ALL, ...more, ...list] : list);
  const [threat, share] = [several(threats, shares.length > 1 ? WORST : ALL), several(shares, ALL)];
  const isOf = (key) => page.settings.some((setting) => setting.data === data[0] && setting.final[key].text !== "–");
  const { key: metric } = metrics.find(({ key }) => isOf(key)) ?? metrics[0];
  state = { metric, threat, share, data: data[0], order: BEST, sort: { column: null } };
  const { columns, cells } = chosenCells(), last = cells.filter(({ column }) => column === columns.at(-1));
  Object.assign(state, { selected: different(last.map(({ setting }) => setting)), active: last[0].setting });
  const first = { ...state };
  const known = { metric: metrics.map(({ key }) => key), threat: [ALL, WORST, ...threats], share: [ALL, ...shares] };
  known.data = [ALL, ...data];
  try {
    const view = { ...first, ...JSON.parse(decodeURIComponent(location.hash.slice(1))) };
    await update(Object.entries(known).every(([key, names]) => names.includes(view[key])) ? view : first);
  } catch {
    await update(first); // the address has no view of this page
  }
  chooser("metric", "Metric", metrics.map(({ key }) => key), metrics.map(({ label }) => label));
  chooser("threat", "Threat", all(threats, WORST));
  chooser("share", "Share", all(shares));
  chooser("data", "Data", all(data));
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
  document.body.dataset.ready = "";
}

start();
