// summary.csv as a sortable table; a row is selected like a cell of the heat map.

import { csv, element, fileName } from "./format.js";
import { save } from "./save.js";

const PAGE_SIZE = 50; // rows

export function makeTable(box, results, select) {
  const { columns, rows } = results.summary;
  const view = { sort: null, isDescending: false, search: "", only: null, page: 0, selected: [] };
  const search = element("input", { type: "search", id: "search", placeholder: "Find", "aria-label": "Find rows", input: (event) => change({ search: event.target.value, page: 0 }) });
  const isShown = element("input", { type: "checkbox", id: "only", change: () => change({ page: 0 }) });
  const saver = element("button", { id: "save-table", click: () => save(`${fileName(results.about.name)}-summary.csv`, csv([columns, ...shown().map((n) => rows[n])]), "text/csv") }, "Download CSV");
  const back = element("button", { "aria-label": "Previous rows", click: () => change({ page: view.page - 1 }) }, "‹");
  const on = element("button", { "aria-label": "Next rows", click: () => change({ page: view.page + 1 }) }, "›");
  const count = element("span", { id: "count" });
  const body = element("tbody");
  const headers = columns.map((name, column) =>
    element("th", { scope: "col" }, element("button", { click: () => sort(column) }, name)),
  );
  const table = element("table", { class: "summary", id: "summary" }, element("thead", {}, element("tr", {}, ...headers)), body);
  box.replaceChildren(
    element("div", { class: "bar-of-buttons" }, search, element("label", {}, isShown, " only settings in the heat map"), saver, back, count, on),
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Summary" }, table),
  );

  function shown() {
    const text = view.search.toLowerCase();
    const matching = rows.map((_, number) => number).filter(
      (number) =>
        (!isShown.checked || view.only === null || view.only.has(number)) &&
        (!text || `${results.settings[number].row} ${results.settings[number].scenario} ${rows[number].join(" ")}`.toLowerCase().includes(text)),
    );
    return view.sort === null ? matching : matching.sort(order(rows, view.sort, view.isDescending ? -1 : 1));
  }

  function sort(column) {
    change({ sort: column, isDescending: view.sort === column ? !view.isDescending : false, page: 0 });
  }

  function change(next) {
    Object.assign(view, next);
    const all = shown();
    view.page = Math.max(0, Math.min(view.page, Math.ceil(all.length / PAGE_SIZE) - 1));
    const first = PAGE_SIZE * view.page;
    const shownNumbers = all.slice(first, first + PAGE_SIZE);
    body.replaceChildren(...shownNumbers.map((number) => line(number)));
    headers.forEach((header, column) => {
      const direction = view.isDescending ? "descending" : "ascending";
      header.setAttribute("aria-sort", view.sort === column ? direction : "none");
    });
    count.textContent = all.length ? `${first + 1}–${first + shownNumbers.length} of ${all.length}` : "none";
    back.disabled = view.page === 0;
    on.disabled = first + PAGE_SIZE >= all.length;
  }

  function line(number) {
    const isSelected = view.selected.includes(number);
    const enter = (event) => select([results.settings[number]], event.shiftKey || event.ctrlKey || event.metaKey);
    const keyed = (event) => {
      if (event.key === "Enter") enter(event);
    };
    const entries = rows[number].map((text) => element("td", { class: isNumber(text) ? "number" : undefined }, text));
    return element("tr", { tabindex: 0, "data-setting": number, "aria-selected": String(isSelected), click: enter, keydown: keyed }, ...entries);
  }

  change({});
  return (selected, only) => change({ selected, only });
}

function isNumber(text) {
  return text !== "" && Number.isFinite(Number(text));
}

// Numbers by size, texts by the alphabet, empty entries always last; the sort is stable.
function order(rows, column, sign) {
  return (a, b) => {
    const [x, y] = [rows[a][column], rows[b][column]];
    if ((x === "") !== (y === "")) return x === "" ? 1 : -1;
    if (isNumber(x) && isNumber(y)) return sign * (Number(x) - Number(y)) || a - b;
    return sign * (x < y ? -1 : x > y ? 1 : 0) || a - b;
  };
}
