// The page: filters, keys, theme, and the links from findings to items.
function fill(id, options) {
  byId(id).replaceChildren(...options.map(([value, text]) => {
    const option = element("option", "", text);
    option.value = value;
    return option;
  }));
}

function fillFilters(data) {
  const kinds = Object.entries(KINDS).filter(([kind]) => data.accepted.length
    || (kind !== "lost" && kind !== "gained"));
  fill("f-kind", kinds.map(([kind, [text]]) => [kind, text]));
  fill("f-arm", [["", "any arm"], ...data.arms.map((arm) => [arm, arm])]);
  fill("f-outcome", [["", "any outcome"], ...data.outcomes.map((o) => [o, o.replace("_", " ")])]);
  fill("f-check", [["", "any check"], ...Object.keys(data.found).map((check) => [check, check])]);
}

const wanted = () => ({
  kind: byId("f-kind").value, arm: byId("f-arm").value, outcome: byId("f-outcome").value,
  check: byId("f-check").value, text: byId("f-text").value,
});

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
}

function toggleTheme() {
  const set = document.documentElement.dataset.theme;
  const dark = set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  setTheme(dark ? "light" : "dark");
}

function onKey(event, list) {
  const tag = event.target.tagName;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (tag === "INPUT" || tag === "SELECT" || tag === "TEXTAREA") {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const inList = event.target === list.box;
  const steps = { j: 1, k: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10,
    Home: -Infinity, End: Infinity } : {}) };
  if (event.key in steps) list.step(steps[event.key]);
  else if (event.key === "f") list.stepToFlip(1);
  else if (event.key === "F") list.stepToFlip(-1);
  else if (event.key === "/") byId("f-text").focus();
  else if (event.key === "t") toggleTheme();
  else return;
  event.preventDefault();
}

function openItem(list, view, data, id, arm) {
  const place = data.place.get(id);
  if (place === undefined) return;
  for (const name of ["f-kind", "f-arm", "f-outcome", "f-check", "f-text"]) byId(name).value = "";
  list.show(filtered(data, wanted()));
  if (arm) view.choose(arm);
  list.select(list.shown.indexOf(place));
}

function start(data) {
  const view = new ItemView(data);
  const list = new ItemList(data, (place) => view.open(place));
  fillFilters(data);
  const refresh = () => {
    if (wanted().arm !== "") view.choose(wanted().arm);
    list.show(filtered(data, wanted()));
    if (list.at < 0) list.select(0);
    else view.draw();
  };
  for (const id of ["f-kind", "f-arm", "f-outcome", "f-check"]) {
    byId(id).addEventListener("change", refresh);
  }
  byId("f-text").addEventListener("input", refresh);
  document.addEventListener("keydown", (event) => onKey(event, list));
  for (const link of document.querySelectorAll("[data-item][type=button]")) {
    link.addEventListener("click", () => {
      openItem(list, view, data, link.dataset.item, link.dataset.arm);
      byId("items").scrollIntoView();
      list.box.focus({ preventScroll: true });
    });
  }
  list.show(filtered(data, wanted()));
  const opened = byId("exhibit") || document.querySelector(".finding [data-item]");
  if (opened !== null) openItem(list, view, data, opened.dataset.item, opened.dataset.arm);
  else list.select(0);
  document.documentElement.dataset.ready = "yes";
}

byId("theme").addEventListener("click", toggleTheme);
// After the first paint: the verdict is read before the items are unpacked.
requestAnimationFrame(() => setTimeout(() => {
  unpack(byId("packed").textContent).then((data) => start(prepare(data))).catch((problem) => {
    byId("detail").textContent = `The items cannot be shown: ${problem.message}`;
    document.documentElement.dataset.ready = "failed";
    throw problem;
  });
}, 0));
