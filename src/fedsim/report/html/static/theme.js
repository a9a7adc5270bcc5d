// Light and dark, and colors for color-blind readers.

// cividis (Nuñez, Anderton and Renslow 2018), from low to high.
const CIVIDIS = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115],
  [138, 134, 120], [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
];
const DASHES = ["solid", "dash", "dashdot", "dot", "longdashdot"];
const INK = { light: "#1b1f24", dark: "#e6e8eb" };
const PALE = { light: "#d9dde2", dark: "#3a4048" };
const BLACK = "#000000"; // of the palette; cannot be seen on dark

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
}

// The color at 0 to 1, and that of text on it.
export function heat(position) {
  const at = Math.min(Math.max(position, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const rgb = CIVIDIS[low].map((from, i) => Math.round(from + (at - low) * (CIVIDIS[low + 1][i] - from)));
  const luminance = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2];
  return { fill: `rgb(${rgb.join(",")})`, text: luminance > 128 ? "#000" : "#fff" };
}

export function heatGradient(isReversed) {
  const stops = CIVIDIS.map((rgb) => `rgb(${rgb.join(",")})`);
  return `linear-gradient(to right, ${(isReversed ? stops.reverse() : stops).join(", ")})`;
}

// Color and dashes of the line at a position: colors and dashes have different periods.
export function line(colors, position, dark) {
  const color = colors[position % colors.length];
  return { color: color === BLACK && dark ? INK.dark : color, dash: DASHES[position % DASHES.length] };
}

// The color of an ordered value at 0 to 1, without those that cannot be seen on the page.
export function onScale(position, dark) {
  return { color: heat(dark ? 0.3 + 0.7 * position : 0.85 * position).fill, dash: "solid" };
}

export function plotColors(dark) {
  const kind = dark ? "dark" : "light";
  return { ink: INK[kind], pale: PALE[kind] };
}
