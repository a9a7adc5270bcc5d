// The heat map: which setting is in which cell, and its mean.

const THREAT_AXES = ["threat", "corruption", "attack", "fraction"]; // axes that do not apply to clean settings
export const WORST = "worst"; // of all values of an axis

const MISSING = 65535; // as in packing.py
const STEPS = 65534;

export function share(code) {
  return code === MISSING ? NaN : code / STEPS;
}

// The document with, for each setting, its position and where its values begin; axes and metrics by key.
export function prepare(contents) {
  let start = 0;
  contents.settings.forEach((setting, number) => {
    Object.assign(setting, { number, start, x: contents.rounds[setting.rounds] });
    start += setting.seeds.length * setting.x.length;
  });
  const byKey = (list) => new Map(list.map((entry) => [entry.key, entry]));
  return { ...contents, axisOf: byKey(contents.axes), metricOf: byKey(contents.metrics), means: new Map() };
}

// A metric of a setting over rounds, in the unit that is shown: an array for each seed.
export function series(metric, setting) {
  const decode = metric.is_share ? share : (value) => value;
  return setting.seeds.map((_, seed) => {
    const from = setting.start + seed * setting.x.length;
    return Array.from(metric.numbers.subarray(from, from + setting.x.length), (v) => metric.scale * decode(v));
  });
}

// One number of a run: after the last round, the mean of the last n evaluations, that at a position, or the best of all.
export function reduce(values, { at, n }, position, higherIsBetter) {
  if (at === "final") return values[values.length - 1];
  if (at === "last") return mean(values.slice(-n));
  if (at === "validation") return values[position];
  const finite = values.filter(Number.isFinite);
  return finite.length ? finite.reduce((a, b) => (higherIsBetter ? Math.max(a, b) : Math.min(a, b))) : NaN;
}

export function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

export function deviation(values) {
  const middle = mean(values);
  return values.length > 1 ? Math.sqrt(values.reduce((a, v) => a + (v - middle) ** 2, 0) / (values.length - 1)) : NaN;
}

// For each seed of a setting, the first evaluation that is the best on validation data, as settings.py takes it.
function bestOnValidation(results, setting) {
  const runs = (key) => (results.metricOf.has(key) ? series(results.metricOf.get(key), setting) : []);
  const hasAccuracy = runs("accuracy").flat().some(Number.isFinite);
  const goodness = hasAccuracy ? (value) => value : (value) => -value;
  const ranked = runs(hasAccuracy ? "validation_accuracy" : "validation_loss").map((run) =>
    run.map((value) => (Number.isNaN(value) ? -Infinity : goodness(value))),
  );
  return ranked.map((run) => run.indexOf(Math.max(...run)));
}

// Mean and deviation over seeds of every setting; seeds without a number are left out.
export function numbers(results, state) {
  const key = [state.metric, state.at, state.n].join();
  if (!results.means.has(key)) {
    const metric = results.metricOf.get(state.metric);
    const means = results.settings.map((setting) => {
      const best = state.at === "validation" ? bestOnValidation(results, setting) : [];
      const runs = series(metric, setting).map((run, seed) => reduce(run, state, best[seed], metric.higher_is_better));
      const finite = runs.filter(Number.isFinite);
      return { mean: finite.length ? mean(finite) : NaN, deviation: deviation(finite), count: finite.length };
    });
    results.means.set(key, means);
  }
  return results.means.get(key);
}

// The axes that are neither rows nor columns, nor follow from these: each is held at a value, or at its worst.
export function filters(results, state) {
  const placed = [state.rows, state.columns].map((key) => results.axisOf.get(key)).filter(Boolean);
  const determined = new Set(placed.flatMap((axis) => [axis.key, ...axis.determines]));
  const threat = results.axisOf.get("threat");
  const isWhole = threat && ![threat.key, ...threat.determines].some((key) => determined.has(key));
  const isFilter = (axis) => {
    if (determined.has(axis.key) || axis.key === "row") return false;
    if (axis.key === "threat") return isWhole;
    return !(isWhole && threat.determines.includes(axis.key));
  };
  return results.axes.filter(isFilter);
}

// The initial value of an axis: the worst of corruptions and attacks; the share and others that most settings have, of
// several the one with the best mean (of shares the first).
export function defaultValue(results, state, axis) {
  if (THREAT_AXES.includes(axis.key) && axis.key !== "fraction") return WORST;
  const sign = results.metricOf.get(state.metric)?.higher_is_better === false ? -1 : 1;
  const all = numbers(results, state);
  const places = axis.values.map((_, value) => {
    const settings = results.settings.filter((setting) => axis.codes[setting.number] === value);
    const whole = settings.filter((setting) => !setting.num_diverged).map((setting) => all[setting.number].mean);
    const finite = whole.filter(Number.isFinite);
    const score = axis.key === "fraction" ? 0 : finite.length ? sign * mean(finite) : -Infinity;
    return { value, count: settings.length, score };
  });
  return places.reduce((a, b) => (b.count > a.count || (b.count === a.count && b.score > a.score) ? b : a)).value;
}

// The heat map: labels of rows and columns, and for each cell its setting (null: none) and among how many it is worst.
export function grid(results, state) {
  const axes = [results.axisOf.get(state.rows), results.axisOf.get(state.columns)];
  const [rows, columns] = axes.map((axis) => (axis ? axis.values : ["All"]));
  const held = filters(results, state).map((axis) => [axis, state.held[axis.key]]);
  const exact = rows.map(() => columns.map(() => []));
  const wild = rows.map(() => columns.map(() => []));
  for (const setting of results.settings) {
    const fit = fits(setting, held, axes);
    if (fit === null) continue;
    for (const row of positions(axes[0], setting)) {
      for (const column of positions(axes[1], setting)) (fit ? exact : wild)[row][column].push(setting);
    }
  }
  const all = numbers(results, state);
  const higher = results.metricOf.get(state.metric).higher_is_better;
  const cells = exact.map((line, r) =>
    line.map((matching, c) => {
      const candidates = matching.length ? matching : wild[r][c];
      const setting = worst(candidates, all, higher);
      return { setting, among: candidates.length, ...(setting ? all[setting.number] : { mean: NaN, deviation: NaN, count: 0 }) };
    }),
  );
  columns.forEach((_, c) => {
    const most = Math.max(...cells.map((line) => line[c].among));
    for (const line of cells) line[c].isPartial = line[c].setting !== null && line[c].among < most;
  });
  return { rowAxis: axes[0], columnAxis: axes[1], columns, ...ordered(rows, cells, state.order, higher) };
}

// Whether a setting has the held values: true, null (no), or false if it is clean and represents any share and attack.
function fits(setting, held, placed) {
  let isExact = true;
  const isNamed = (axis, value) => THREAT_AXES.includes(axis.key) && axis.codes[setting.number] === value;
  const mayStand =
    setting.is_clean &&
    (placed.some((axis) => axis && THREAT_AXES.includes(axis.key)) ||
      held.some(([axis, value]) => axis.key !== "fraction" && isNamed(axis, value)));
  for (const [axis, value] of held) {
    const code = axis.codes[setting.number];
    if (value === WORST || code === -1 || code === value) continue;
    if (!mayStand || !THREAT_AXES.includes(axis.key)) return null;
    isExact = false;
  }
  return isExact;
}

// The positions of a setting on an axis: all, if the axis does not apply to it.
function positions(axis, setting) {
  if (!axis) return [0];
  const code = axis.codes[setting.number];
  return code === -1 ? axis.values.map((_, value) => value) : [code];
}

// The worst setting: that with the most diverged runs, then with the worst mean; never one where nothing was measured.
function worst(settings, all, higherIsBetter) {
  const badness = (setting) => {
    const value = all[setting.number].mean;
    if (Number.isNaN(value)) return setting.num_diverged ? Infinity : -Infinity;
    return higherIsBetter ? -value : value;
  };
  const isWorse = (a, b) => a.num_diverged > b.num_diverged || (a.num_diverged === b.num_diverged && badness(a) >= badness(b));
  return settings.reduce((a, b) => (a && isWorse(a, b) ? a : b), null);
}

// Rows with a setting, as they are listed or the best mean first.
function ordered(rows, cells, order, higherIsBetter) {
  const kept = rows.map((label, row) => ({ label, cells: cells[row] })).filter((row) => row.cells.some((p) => p.setting));
  const score = (row) => {
    const finite = row.cells.map((cell) => cell.mean).filter(Number.isFinite);
    return finite.length ? (higherIsBetter ? 1 : -1) * mean(finite) : -Infinity;
  };
  if (order === "best") kept.sort((a, b) => score(b) - score(a));
  return { rows: kept.map((row) => row.label), cells: kept.map((row) => row.cells) };
}
