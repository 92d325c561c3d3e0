// One item: its question, and two answers side by side.
const LONGEST_ALIGNED = 700;

function piecesOf(variant, byToken) {
  const [text, lengths] = variant;
  if (!byToken || lengths === null) return text.match(/\s*\S+|\s+$/g) || [];
  const pieces = [];
  let from = 0;
  for (const length of lengths) {
    if (from >= text.length) break;
    pieces.push(text.slice(from, from + length));
    from += length;
  }
  if (from < text.length) pieces.push(text.slice(from));
  return pieces;
}

// Which pieces of `ours` from `first` on have no partner in `theirs`: longest common subsequence.
function changed(ours, theirs, first) {
  const a = ours.slice(first);
  const b = theirs.slice(first);
  if (a.length > LONGEST_ALIGNED || b.length > LONGEST_ALIGNED) return a.map(() => true);
  const width = b.length + 1;
  const best = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      best[i * width + j] = a[i] === b[j] ? best[(i + 1) * width + j + 1] + 1
        : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  const flags = [];
  for (let i = 0, j = 0; i < a.length;) {
    if (j < b.length && a[i] === b[j]) { flags.push(false); i += 1; j += 1; }
    else if (j >= b.length || best[(i + 1) * width + j] >= best[i * width + j + 1]) {
      flags.push(true); i += 1;
    } else j += 1;
  }
  return flags;
}

// Where two answers part. Pieces are tokens where the tokens of both are at hand, else words;
// `at` is the first token that differs where the records hold ids, else the first word.
function difference(item, left, right) {
  if (left === right) return null;
  const byToken = item.v[left][1] !== null && item.v[right][1] !== null;
  const pieces = [left, right].map((at) => piecesOf(item.v[at], byToken));
  let mark = 0;
  while (mark < pieces[0].length && pieces[0][mark] === pieces[1][mark]) mark += 1;
  const pair = item.p.find(([a, b]) => (a === left && b === right) || (a === right && b === left));
  if (pair === undefined) return { pieces, mark, at: mark, tokens: false, margins: [null, null] };
  const [a, , at, marginA, marginB] = pair;
  const margins = a === left ? [marginA, marginB] : [marginB, marginA];
  return { pieces, mark: byToken ? at : mark, at, tokens: true, margins };
}

function writeAnswer(box, pieces, differs, first, stretch) {
  let from = 0;
  pieces.forEach((piece, at) => {
    const part = element("span", "token", piece);
    if (at === first) part.classList.add("first-difference");
    else if (differs[at]) part.classList.add("differs");
    if (stretch !== null && from < stretch[3] && from + piece.length > stretch[2]) {
      part.classList.add("degenerate");
    }
    box.append(part);
    from += piece.length;
  });
}

class ItemView {
  constructor(data) {
    this.data = data;
    this.box = byId("detail");
    this.item = null;
    this.sides = [0, Math.min(1, data.series.length - 1)];
  }

  // Show `arm` on the right, and on the left what it is to be held against.
  choose(arm) {
    const right = this.data.series.findIndex((one) => !one.accepted && one.arm === arm);
    if (right < 0) return;
    const held = this.data.series.findIndex((one) => one.accepted && one.arm === arm);
    const eager = this.data.series.findIndex((one) => one.arm === "eager");
    this.sides = [arm === "eager" && held >= 0 ? held : Math.max(eager, 0), right];
  }

  open(place) {
    this.item = this.data.items[place];
    this.draw();
  }

  draw() {
    if (this.item === null) return;
    const item = this.item;
    const gold = element("p", "", "Gold: ");
    gold.append(element("b", "", item.g === null ? "missing: the task gives none" : item.g));
    const sides = element("div", "sides");
    const cells = this.sides.map((at) => cellOf(item, this.data.series[at]));
    const found = this.compared(cells);
    sides.append(...[0, 1].map((side) => this.side(side, cells, found)));
    const title = element("h3", "", "Item ");
    title.append(element("code", "", item.id));
    this.box.replaceChildren(title, element("p", "question", item.q), gold,
      element("p", "note difference", this.told(cells, found)), sides);
    this.box.dataset.item = item.id;
  }

  compared(cells) {
    if (cells.some((cell) => cell === null || this.item.v[cell[0]][0] === null)) return null;
    return difference(this.item, cells[0][0], cells[1][0]);
  }

  told(cells, found) {
    if (cells.some((cell) => cell === null)) return "One of the answers is missing.";
    if (found === null) return cells[0][0] === cells[1][0] ? "Both answers are the same." : "";
    if (!found.tokens) {
      return `The texts part at word ${found.at}. Margin missing: no token ids tell them apart.`;
    }
    const labels = this.sides.map((at) => this.data.series[at].label);
    const margins = found.margins.map((margin, side) =>
      `${labels[side]} ${margin === null ? "missing" : margin}`);
    return `First difference at token ${found.at}. Logit margin there: ${margins.join(", ")}.`;
  }

  side(side, cells, found) {
    const box = element("div", "side");
    const select = element("select");
    select.setAttribute("aria-label", side === 0 ? "Left answer" : "Right answer");
    this.data.series.forEach((one, at) => {
      const cell = cellOf(this.item, one);
      const option = element("option", "", `${one.label}: ${outcomeOf(this.data, cell)}`);
      option.value = String(at);
      select.append(option);
    });
    select.value = String(this.sides[side]);
    select.addEventListener("change", () => {
      this.sides[side] = Number(select.value);
      this.draw();
      this.box.querySelectorAll("select")[side].focus();
    });
    box.append(select, this.facts(cells[side], this.data.series[this.sides[side]]));
    if (cells[side] !== null) box.append(this.answer(side, cells, found));
    return box;
  }

  facts(cell, series) {
    if (cell === null) return element("p", "gone", "missing: this arm has no answer to the item");
    const outcome = outcomeOf(this.data, cell);
    if (series.accepted) {
      return element("p", "note", `${outcome}; ${cell[2]} of ${cell[3]} accepted answers are so`);
    }
    const read = cell[3] === null ? "no value was read" : `read as ${cell[3]}`;
    const rule = cell[2] === null ? "" : `; rule ${cell[2]}`;
    const tokens = cell[4] === null ? "token count missing" : `${cell[4]} tokens`;
    return element("p", "note", `${outcome}; ${read}; ${tokens}${rule}`);
  }

  answer(side, cells, found) {
    const variant = this.item.v[cells[side][0]];
    if (variant[0] === null) return element("p", "gone", `no answer was obtained: ${variant[4]}`);
    const box = element("pre", "answer");
    box.tabIndex = 0;
    box.setAttribute("aria-label", `Answer of ${this.data.series[this.sides[side]].label}`);
    const pieces = found === null ? piecesOf(variant, true) : found.pieces[side];
    const mark = found === null ? -1 : found.mark;
    const differs = found === null ? []
      : [...Array(Math.min(mark, pieces.length)).fill(false),
        ...changed(pieces, found.pieces[1 - side], mark)];
    writeAnswer(box, pieces, differs, mark, variant[3]);
    if (variant[2] > 0) {
      box.append(element("i", "gone", ` … ${variant[2]} more characters are in records.jsonl`));
    } else if (pieces.length === 0) box.append(element("i", "gone", "an empty text"));
    return box;
  }
}
