// The list of items: only the rows in sight exist.
const ROW_HEIGHT = 44;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = readable(text);
  return made;
}

// Characters that act instead of being read are shown by their number, as in the rest of the page.
const ACTING = new RegExp([
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e]",
  "[\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ufffe\\uffff]",
  "[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
].join("|"), "g");
const named = (sign) => {
  const code = sign.charCodeAt(0);
  return code < 32 ? String.fromCharCode(0x2400 + code)
    : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
};
const readable = (text) => String(text).replace(ACTING, named);

class ItemList {
  constructor(data, onOpen) {
    this.data = data;
    this.onOpen = onOpen;
    this.shown = [];
    this.at = -1;
    this.box = byId("list");
    this.rows = byId("rows");
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    window.addEventListener("resize", () => this.draw());
    this.rows.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row !== null) this.select(Number(row.dataset.at));
    });
  }

  show(places) {
    const open = this.at >= 0 ? this.shown[this.at] : -1;
    this.shown = places;
    this.at = places.indexOf(open);
    this.rows.style.height = `${places.length * ROW_HEIGHT}px`;
    const total = this.data.items.length.toLocaleString("en");
    byId("count").textContent = `${places.length.toLocaleString("en")} of ${total} items`;
    this.box.scrollTop = Math.max(0, this.at) * ROW_HEIGHT;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 4);
    const count = Math.ceil(this.box.clientHeight / ROW_HEIGHT) + 8;
    const last = Math.min(this.shown.length, first + count);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.row(at));
    this.rows.replaceChildren(...rows);
    const open = this.at >= first && this.at < last ? `row-${this.at}` : "";
    if (open) this.box.setAttribute("aria-activedescendant", open);
    else this.box.removeAttribute("aria-activedescendant");
  }

  row(at) {
    const place = this.shown[at];
    const item = this.data.items[place];
    const row = element("div", "row");
    row.id = `row-${at}`;
    row.dataset.at = String(at);
    row.dataset.item = item.id;
    row.style.top = `${at * ROW_HEIGHT}px`;
    row.setAttribute("role", "option");
    row.setAttribute("aria-selected", String(at === this.at));
    row.setAttribute("aria-setsize", String(this.shown.length));
    row.setAttribute("aria-posinset", String(at + 1));
    row.append(element("div", "question", item.q.slice(0, 160)), this.dots(item));
    return row;
  }

  dots(item) {
    const dots = element("div", "dots");
    for (const series of this.data.own) {
      const cell = item.c[series.at];
      const right = isRight(this.data, cell);
      const dot = element("span", `dot${cell === null ? " none" : right ? " right" : ""}`,
        `${series.arm}${cell === null ? "?" : right ? "✓" : "✗"}`);
      dot.title = `${series.label}: ${outcomeOf(this.data, cell)}`;
      dots.append(dot);
    }
    return dots;
  }

  select(at) {
    if (at < 0 || at >= this.shown.length) return;
    this.at = at;
    const top = at * ROW_HEIGHT;
    const box = this.box;
    if (top < box.scrollTop) box.scrollTop = top;
    const low = top + ROW_HEIGHT - box.clientHeight;
    if (low > box.scrollTop) box.scrollTop = low;
    this.draw();
    this.onOpen(this.shown[at]);
  }

  step(by) {
    this.select(Math.min(Math.max(this.at + by, 0), this.shown.length - 1));
  }

  stepToFlip(by) {
    for (let at = this.at + by; at >= 0 && at < this.shown.length; at += by) {
      if (isFlip(this.data, this.shown[at])) {
        this.select(at);
        return;
      }
    }
  }
}

const outcomeOf = (data, cell) =>
  (cell === null ? "answer missing" : data.outcomes[cell[1]].replace("_", " "));
