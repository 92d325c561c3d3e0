"use strict";
// The run's items as the page holds them; see items.py for the layout.
const byId = (id) => document.getElementById(id);

async function unpack(text) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser cannot unpack the items: it lacks DecompressionStream");
  }
  const bytes = Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// One series of answers: an arm in one repeat, or an arm's accepted answers.
function seriesOf(data) {
  const repeated = data.columns.some(([, repeat]) => repeat > 0);
  const own = data.columns.map(([arm, repeat], at) => ({
    arm, at, accepted: false, label: repeated ? `${arm}, repeat ${repeat + 1}` : arm,
  }));
  const held = data.accepted.map((arm, at) => ({
    arm, at, accepted: true, label: `${arm}, baseline`,
  }));
  return [...own, ...held];
}

const cellOf = (item, series) => (series.accepted ? item.b : item.c)[series.at];

function prepare(data) {
  data.series = seriesOf(data);
  data.own = data.series.filter((one) => !one.accepted);
  data.arms = [...new Set(data.columns.map(([arm]) => arm))];
  data.place = new Map(data.items.map((item, at) => [item.id, at]));
  const texts = (item) => item.v.map((variant) => variant[0] || "");
  data.lower = data.items.map((item) =>
    [item.id, item.q, item.g, ...texts(item)].join("\n").toLowerCase());
  data.lost = new Map();
  data.gained = new Map();
  for (const arm of data.arms) {
    const [lost, gained] = data.flips[arm] || [[], []];
    data.lost.set(arm, new Set(lost));
    data.gained.set(arm, new Set(gained));
  }
  return data;
}

// Items as the filter lets them through: places in data.items.
const isRight = (data, cell) => cell !== null && cell[1] === data.right;
const cellsOf = (data, item, arm) =>
  data.own.filter((series) => arm === "" || series.arm === arm)
    .map((series) => item.c[series.at]);

function eagerDiffers(data, item, arm, wasRight) {
  const eager = data.own.find((series) => series.arm === "eager");
  if (eager === undefined || item.c[eager.at] === null) return false;
  if (isRight(data, item.c[eager.at]) !== wasRight) return false;
  return cellsOf(data, item, arm).some((cell) => cell !== null && isRight(data, cell) !== wasRight);
}

const inAny = (sets, arm, at) =>
  arm === "" ? [...sets.values()].some((set) => set.has(at)) : sets.get(arm).has(at);

const KINDS = {
  "": ["all items", () => true],
  lost: ["flips: right in the baseline, wrong now", (data, at, arm) => inAny(data.lost, arm, at)],
  gained: ["wrong in the baseline, right now", (data, at, arm) => inAny(data.gained, arm, at)],
  "lost-eager": ["right in eager, wrong here",
    (data, at, arm) => eagerDiffers(data, data.items[at], arm, true)],
  "gained-eager": ["wrong in eager, right here",
    (data, at, arm) => eagerDiffers(data, data.items[at], arm, false)],
  differ: ["arms disagree", (data, at) => {
    const seen = data.items[at].c.filter((cell) => cell !== null);
    return new Set(seen.map((cell) => isRight(data, cell))).size > 1;
  }],
  texts: ["texts differ", (data, at) =>
    new Set(data.items[at].c.filter((cell) => cell !== null).map((cell) => cell[0])).size > 1],
  rule: ["a degeneration rule saw something", (data, at, arm) =>
    cellsOf(data, data.items[at], arm).some((cell) => cell !== null && cell[2] !== null)],
  absent: ["answers are missing", (data, at, arm) =>
    cellsOf(data, data.items[at], arm).some((cell) => cell === null)],
};

const isFlip = (data, at) => data.accepted.length
  ? KINDS.lost[1](data, at, "") || KINDS.gained[1](data, at, "") : KINDS.differ[1](data, at);

function filtered(data, wanted) {
  const named = wanted.check === "" ? null : new Set(Object.entries(data.found[wanted.check] || {})
    .filter(([arm]) => wanted.arm === "" || arm === "" || arm === wanted.arm)
    .flatMap(([, places]) => places));
  const outcome = data.outcomes.indexOf(wanted.outcome);
  const text = wanted.text.trim().toLowerCase();
  const kind = KINDS[wanted.kind][1];
  const found = [];
  for (let at = 0; at < data.items.length; at += 1) {
    if (named !== null && !named.has(at)) continue;
    if (text !== "" && !data.lower[at].includes(text)) continue;
    if (wanted.outcome !== "" && !cellsOf(data, data.items[at], wanted.arm)
      .some((cell) => cell !== null && cell[1] === outcome)) continue;
    if (kind(data, at, wanted.arm)) found.push(at);
  }
  return found;
}
