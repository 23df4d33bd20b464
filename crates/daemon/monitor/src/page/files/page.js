// Shows what /api/overview and /api/history say, every few seconds. Nothing here changes anything.
"use strict";

const POLL_MS = 5000;
const HISTORY_ROWS_MAX = 720;
const HEAT_ROWS_MAX = 64;
const REPORT_BYTES_MAX = 64 << 20;

const $ = (id) => document.getElementById(id);

/** An element with attributes and children; texts are texts, whatever they hold. */
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children.flat(Infinity).filter((child) => child !== null));
  return made;
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const show = (id, ...children) => $(id).replaceChildren(...children.flat(Infinity));

// Numbers for people.
function scaled(value, step, units) {
  let unit = 0;
  while (value >= step * 0.9995 && unit + 1 < units.length) { value /= step; unit += 1; }
  return (value >= 100 || unit === 0 ? Math.round(value) : value.toPrecision(3)) + units[unit];
}
const bytes = (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"]);
const count = (value) => scaled(value, 1000, ["", " k", " M", " G", " T"]);
const time = (us) => us < 1000 ? `${Math.round(us)} µs` : us < 1e6 ? `${(us / 1e3).toPrecision(3)} ms` : `${(us / 1e6).toPrecision(3)} s`;
const known = (value, unit, end = "") => value === null || value === undefined ? "–" : `${unit(value)}${end}`;
const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

const SEVERITY = { HEALTH_OK: ["ok", "Everything is well"], HEALTH_WARN: ["warn", "There are warnings"], HEALTH_ERR: ["err", "There are errors"] };

function showHealth(health) {
  const [kind, words] = SEVERITY[health.status] ?? ["err", health.status];
  const checks = health.checks.map((check) => {
    const [severity] = SEVERITY[check.severity] ?? ["warn"];
    const more = check.details_left_out > 0 ? [el("li", {}, `and ${check.details_left_out} more`)] : [];
    const lines = check.detail.map((line) => el("li", {}, line)).concat(more);
    const muted = check.muted ? " (muted)" : "";
    return el("article", { class: `check ${severity}` },
      el("h3", { class: severity }, `${check.code}${muted}: ${check.summary}`),
      check.means ? el("p", {}, check.means) : null,
      check.advice ? el("p", {}, el("b", {}, "What to do: "), check.advice) : null,
      lines.length ? el("ul", {}, lines) : null);
  });
  show("health", el("p", { class: `big ${kind}` }, `${health.status}: ${words}`), checks);
}

function showNow(facts) {
  const { io, usage, pgs } = facts;
  const up = facts.osds.filter((osd) => osd.up).length;
  const inside = facts.osds.filter((osd) => osd.in).length;
  const monitors = facts.monitors.map((mon) => mon.name + (mon.leads ? " (leads)" : mon.in_quorum ? "" : " (out of quorum)"));
  const states = Object.entries(pgs.states).map(([state, number]) => `${number} ${state}`);
  const rows = [
    ["Clients read", io ? `${bytes(io.read_bytes)}/s, ${count(io.read_ops)} op/s` : "not known yet"],
    ["Clients write", io ? `${bytes(io.write_bytes)}/s, ${count(io.write_ops)} op/s` : "not known yet"],
    ["Used", `${bytes(usage.used_bytes)} of ${bytes(usage.total_bytes)} (${percent(usage.used_bytes / Math.max(usage.total_bytes, 1))})`],
    ["Data", `${count(usage.objects)} objects, ${bytes(usage.data_bytes)}`],
    ["OSDs", `${facts.osds.length}, ${up} up, ${inside} in`],
    ["PGs", `${pgs.count}: ${states.join(", ") || "none"}`],
    ["Monitors", monitors.join(", ")],
    ["Manager", facts.manager],
  ];
  show("now", rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function showRecovery(facts) {
  const { recovery, io, pgs } = facts;
  if (!recovery) {
    const left = pgs.degraded + pgs.misplaced;
    const words = !facts.recovery_known || pgs.unknown ? "Not known yet: not all OSDs have reported."
      : left ? `Not known yet: ${count(left)} copies are missing or in the wrong place, and nothing has moved.`
        : pgs.inactive ? `Nothing moves; ${pgs.inactive} PGs are not active.` : null;
    show("recovery", words ? el("p", {}, words) : el("p", { class: "ok" }, "Nothing to recover: all copies are where they belong."));
    return;
  }
  const ends = recovery.remaining_s === null ? "no forecast yet" : `done in about ${span(recovery.remaining_s)}`;
  const copies = Math.max(pgs.copies, 1);
  show("recovery",
    el("p", { class: "big" }, `${percent(recovery.share_done)} done, ${ends}`),
    el("progress", { max: 1, value: recovery.share_done, "aria-label": "share of the recovery that is done" }),
    el("dl", { class: "figures" }, [
      ["Going on for", span(recovery.lasts_s)],
      ["Copies left", count(recovery.copies_left)],
      ["Missing copies", `${count(pgs.degraded)} (${percent(pgs.degraded / copies)})`],
      ["In the wrong place", `${count(pgs.misplaced)} (${percent(pgs.misplaced / copies)})`],
      ["Speed", io ? `${bytes(io.recovered_bytes)}/s, ${count(io.recovered_objects)} objects/s` : "not known yet"],
    ].map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
}

// Lines over the last hour.
const WIDTH = 440, HEIGHT = 140, LEFT = 56, BOTTOM = 18;
const SHOWN_S_MIN = 300, SHOWN_S_MAX = 3600;
const CHARTS = [
  ["Operations of clients per second", count, [["reads", "read_ops"], ["writes", "write_ops"]]],
  ["Bytes per second", bytes, [["read", "read_bytes"], ["written", "write_bytes"], ["recovered", "recovered_bytes"]]],
  ["Mean time of clients' requests on OSDs", time, [["reads", "read_us"], ["writes", "write_us"]]],
  ["99 of 100 requests of all devices take less than", time, [["reads", "device_read_us_p99"], ["durable writes", "device_write_us_p99"]]],
];

/** The next round number of that unit. */
function roundUp(value, unit) {
  if (value <= 0) return 1;
  const scale = unit === bytes ? 1024 ** Math.floor(Math.log(value) / Math.log(1024)) : 1;
  const power = 10 ** Math.floor(Math.log10(value / scale));
  return [1, 2, 5, 10].map((step) => step * power * scale).find((step) => step >= value * 0.999999);
}

function chart(title, unit, series, history, now) {
  const at = (name) => history.columns.indexOf(name);
  const shown = Math.min(Math.max(now - (history.rows[0]?.[0] ?? now), SHOWN_S_MIN), SHOWN_S_MAX);
  const x = (second) => LEFT + (WIDTH - LEFT - 4) * (1 - (now - second) / shown);
  const values = series.flatMap(([, name]) => history.rows.map((row) => row[at(name)]));
  const most = roundUp(Math.max(0, ...values), unit);
  const y = (value) => 6 + (HEIGHT - BOTTOM - 6) * (1 - value / most);
  const lines = series.flatMap(([, name], number) => {
    // A line breaks where nothing is known, and where samples are missing.
    const parts = [[]];
    let before = 0;
    for (const row of history.rows) {
      const value = row[at(name)];
      if (value < 0 || row[0] < now - shown) continue;
      if (row[0] - before > 3 * history.period_s && parts.at(-1).length) parts.push([]);
      parts.at(-1).push(`${x(row[0]).toFixed(1)},${y(value).toFixed(1)}`);
      before = row[0];
    }
    const drawn = parts.filter((part) => part.length);
    return drawn.map((part) => svg("polyline", { class: `s${number}`, points: (part.length > 1 ? part : [part[0], part[0]]).join(" "), "stroke-linecap": "round" }));
  });
  const latest = (name) => history.rows.at(-1)?.[at(name)] ?? -1;
  const told = series.map(([label, name]) => `${label} ${latest(name) < 0 ? "none" : unit(latest(name))}`).join(", ");
  const grid = [0, 0.5, 1].flatMap((part) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - 4, y1: y(part * most), y2: y(part * most) }),
    svg("text", { x: LEFT - 5, y: y(part * most) + 4, "text-anchor": "end" }, unit(part * most)),
  ]);
  const marks = [[`${span(shown)} ago`, shown, "start"], [span(shown / 2), shown / 2, "middle"], ["now", 0, "end"]].map(([label, ago, anchor]) =>
    svg("text", { x: x(now - ago), y: HEIGHT - 3, "text-anchor": anchor }, label));
  const keys = series.map(([label, name], number) => el("span", { class: `key s${number}` }, `${label} ${latest(name) < 0 ? "–" : unit(latest(name))}  `));
  return el("figure", {}, el("h3", {}, title), svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}; now ${told}` }, ...grid, ...marks, ...lines), el("figcaption", {}, keys));
}

const fillKind = (share) => share >= 0.9 ? "err" : share >= 0.8 ? "warn" : "";

function tile(osd) {
  const share = osd.used_bytes / Math.max(osd.total_bytes, 1);
  const writes = osd.device?.durable_write;
  const state = [osd.up ? "" : "down", osd.in ? "" : "out"].filter(Boolean).join(", ");
  const kind = !osd.up ? "err" : osd.slow || !osd.in ? "warn" : "";
  const fill = el("i");
  fill.style.width = `${Math.min(100 * share, 100)}%`;
  const tip = [`osd.${osd.id}`, osd.class, osd.devices && `device ${osd.devices}`, `${osd.pgs} PGs, leads ${osd.primaries}`,
    `${bytes(osd.used_bytes)} of ${bytes(osd.total_bytes)}`, osd.slow].filter(Boolean).join("; ");
  return el("li", { class: `osd ${kind}`, title: tip },
    el("b", {}, `osd.${osd.id}`),
    state ? el("span", { class: kind }, state) : null,
    osd.slow ? el("span", { class: "warn" }, "slow device") : null,
    el("span", { class: `fill ${fillKind(share)}`, "aria-hidden": "true" }, fill),
    el("span", {}, `${percent(share)}${osd.up && writes?.count ? `, ${time(writes.us_p99)}` : ""}`));
}

function showMap(osds) {
  const hosts = new Map();
  for (const osd of osds) hosts.set(osd.host || "no host", [...(hosts.get(osd.host || "no host") ?? []), osd]);
  const sorted = [...hosts].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true }));
  show("map", sorted.map(([host, here]) => el("div", { class: "host" },
    el("h3", {}, host), el("ul", { class: "osds", "aria-label": `OSDs of ${host}` }, here.map(tile)))));
}

function showHeat(osds) {
  const work = $("work").value;
  const busy = osds.filter((osd) => osd.up && osd.device?.[work]?.count > 0);
  if (!busy.length) {
    const off = osds.length && osds.every((osd) => osd.device === null);
    show("heat", el("p", { class: "note" }, off ? "Not known: nobody looks at devices, as nacre_slow_device_ratio is 0." : "No device had such requests in the last minute."));
    return;
  }
  busy.sort((a, b) => b.device[work].us_p99 - a.device[work].us_p99);
  const shown = busy.slice(0, HEAT_ROWS_MAX);
  const used = shown.map((osd) => osd.device[work].counts);
  const first = Math.min(...used.map((counts) => counts.findIndex((number) => number > 0)));
  const last = Math.max(...used.map((counts) => counts.length));
  const columns = Array.from({ length: last - first }, (_, number) => first + number);
  const head = el("tr", {}, ["device of", "requests", "half within", "99 % within"].map((name) => el("th", { scope: "col" }, name)),
    columns.map((column) => el("th", { scope: "col" }, `< ${time(2 ** column)}`)));
  const rows = shown.map((osd) => {
    const { counts, count: all, us_p50, us_p99 } = osd.device[work];
    const cells = columns.map((column) => {
      const share = (counts[column] ?? 0) / all;
      const cell = el("td", {}, share === 0 ? "" : share < 0.005 ? "·" : `${Math.round(100 * share)}`);
      cell.style.background = `rgb(var(--heat) / ${(share === 0 ? 0 : 0.12 + 0.6 * Math.sqrt(share)).toFixed(2)})`;
      return cell;
    });
    const name = el("th", { scope: "row", class: osd.slow ? "warn" : null }, `osd.${osd.id}${osd.slow ? " (slow)" : ""}`);
    return el("tr", {}, name, [count(all), time(us_p50), time(us_p99)].map((text) => el("td", {}, text)), cells);
  });
  const rest = busy.length > shown.length ? [el("p", { class: "note" }, `The ${shown.length} slowest of ${busy.length}.`)] : [];
  show("heat", el("table", { class: "heat" }, el("thead", {}, head), el("tbody", {}, rows)), rest);
}

function showSlow(requests) {
  if (!requests.length) {
    show("slow", el("p", { class: "ok" }, "None."));
    return;
  }
  const rows = requests.map((request) => {
    let before = 0;
    const parts = request.stages.map(({ stage, at_ms }) => {
      const part = el("i", { title: `${stage}: ${time(1000 * (at_ms - before))}` });
      part.style.flexGrow = at_ms - before;
      before = at_ms;
      return part;
    });
    const waits = el("i", { class: "waits", title: `${request.waits_for}: ${time(1000 * (request.age_ms - before))}` });
    waits.style.flexGrow = request.age_ms - before;
    const told = request.stages.map(({ stage, at_ms }) => `${stage} ${time(1000 * at_ms)}`).join(", ");
    return el("tr", {}, el("td", {}, `osd.${request.osd}`), el("td", {}, time(1000 * request.age_ms)),
      el("td", { class: "text" }, el("div", { class: "stages", "aria-hidden": "true" }, parts, waits), `${request.waits_for}${told ? ` (after ${told})` : ""}`),
      el("td", { class: "text" }, el("code", {}, request.description)));
  });
  const head = ["on", "for", "waits", "request"].map((name, number) => el("th", { scope: "col", class: number > 1 ? "text" : null }, name));
  show("slow", el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows))));
}

function table(head, rows, none) {
  if (!rows.length) return el("p", { class: "note" }, none);
  const row = (cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)));
  return el("table", {}, el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows.map(row)));
}

function showPools(pools) {
  const rows = pools.map((pool) => [pool.name, `${pool.size}`, `${pool.pgs}`, count(pool.objects), bytes(pool.stored_bytes), bytes(pool.used_bytes),
    bytes(pool.available_bytes), known(pool.io?.read_bytes, bytes, "/s"), known(pool.io?.write_bytes, bytes, "/s"), known(pool.io?.read_ops, count), known(pool.io?.write_ops, count)]);
  const head = ["pool", "copies", "PGs", "objects", "stored", "used", "can take", "read", "written", "reads/s", "writes/s"];
  show("pools", table(head, rows, "There are no pools."));
}

let imagesBefore = null;
function showImages(facts) {
  const key = (image) => JSON.stringify([image.pool, image.namespace, image.name]);
  const before = imagesBefore;
  if (!facts.images) {
    imagesBefore = null;
    show("images", el("p", { class: "note" }, "Not known: OSDs tell it to Nacre's own manager alone."));
    return;
  }
  imagesBefore = { at: facts.at, of: new Map(facts.images.map((image) => [key(image), image])) };
  if (!facts.images.length) {
    show("images", el("p", { class: "note" }, "No image was used."));
    return;
  }
  if (before?.at === facts.at) return;
  const seconds = before ? Math.max(facts.at - before.at, 1) : 1;
  const rates = facts.images.map((image) => {
    const then = before?.of.get(key(image));
    // Of one that was not told of at the look before nothing is known.
    const grown = (name) => then ? Math.max(image[name] - then[name], 0) : null;
    const rate = (name) => then ? grown(name) / seconds : null;
    const mean = (name) => { const ops = grown(`${name}_ops`); return ops ? grown(`${name}_us`) / ops : null; };
    return { image, ops: grown("read_ops") + grown("write_ops"), rate, mean };
  });
  rates.sort((a, b) => b.ops - a.ops);
  const rows = rates.slice(0, 30).map(({ image, rate, mean }) => [[image.pool, image.namespace, image.name].filter(Boolean).join("/"),
    known(rate("read_ops"), count), known(rate("write_ops"), count), known(rate("read_bytes"), bytes, "/s"), known(rate("write_bytes"), bytes, "/s"),
    known(mean("read"), time), known(mean("write"), time)]);
  show("images", table(["image", "reads/s", "writes/s", "read", "written", "time of a read", "of a write"], rows, ""));
}

function showClients(bill) {
  if (!bill) {
    show("clients-note", "Not known: OSDs tell Nacre's own manager alone for whom they work, and only with nacre_bill.");
    show("clients");
    return;
  }
  const { seconds, total_cpu_us: all, lines } = bill;
  show("clients-note", `For whom OSDs worked in the last ${seconds} s: ${time(all / seconds)} of processor time per second in all, the rest of it for no client.`);
  const rows = lines.map((line) => [line.entity, line.host, line.client, [line.pool, line.namespace, line.image].filter(Boolean).join("/"),
    `${time(line.cpu_us / seconds)}/s`, percent(line.cpu_us / Math.max(all, 1)), count(line.ops / seconds), `${bytes(line.bytes / seconds)}/s`,
    line.ops ? time(line.cpu_us / line.ops) : "–"]);
  show("clients", table(["entity", "host", "client", "pool or image", "processor", "share", "requests/s", "bytes", "for a request"], rows, "Clients did nothing."));
}

// Bench reports: what a file holds is copied element by element, none of which can run or load anything.
const TAGS = new Set("h1 h2 h3 p table tbody thead tr th td figure figcaption pre b i small svg g rect line path text polyline polygon circle title".split(" "));
const ATTRIBUTES = new Set(("class x y x1 x2 y1 y2 width height viewBox fill stroke stroke-width stroke-dasharray d points r cx cy rx ry transform " +
  "text-anchor dominant-baseline opacity fill-opacity colspan rowspan").split(" "));

function copied(node) {
  if (node.nodeType === Node.TEXT_NODE) return [document.createTextNode(node.data)];
  if (node.nodeType !== Node.ELEMENT_NODE) return [];
  const children = [...node.childNodes].flatMap(copied);
  if (!TAGS.has(node.localName)) return ["script", "style", "title", "head"].includes(node.localName) ? [] : children;
  if (node.localName === "title" && node.namespaceURI !== "http://www.w3.org/2000/svg") return [];
  const made = document.createElementNS(node.namespaceURI, node.localName);
  for (const { name, value } of node.attributes) if (ATTRIBUTES.has(name) && !/url\s*\(/i.test(value)) made.setAttribute(name, value);
  made.append(...children);
  return [made];
}

const REPORT_STYLE = `:host{display:block}table{border-collapse:collapse;margin:1em 0;font-size:13px}td,th{padding:2px 8px;text-align:right;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}.better{color:#1a9850}.worse{color:#e0524a}.unsure{color:#888}
figure{display:inline-block;margin:0 16px 16px 0;vertical-align:top;background:#fff;color:#222;padding:6px;border-radius:4px}
figcaption{font-weight:bold}svg{max-width:100%}svg text{font:11px sans-serif}pre{background:#8882;padding:8px;overflow:auto}h1{font-size:18px}h2{font-size:15px}`;

function showHtmlReport(text) {
  // A report's own style would only be refused, with a complaint.
  const report = new DOMParser().parseFromString(text.replace(/<(style|script)\b[\s\S]*?<\/\1>/gi, ""), "text/html");
  const place = el("div");
  const root = place.attachShadow({ mode: "closed" });
  const style = new CSSStyleSheet();
  style.replaceSync(REPORT_STYLE);
  root.adoptedStyleSheets = [style];
  root.append(...copied(report.body));
  show("bench", place);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function showResults(text) {
  const lines = text.split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line));
  const figures = lines.filter((line) => line.kind === "figures");
  if (!figures.length) throw new Error("no figures of a bench are in it");
  const own = new Set(["kind", "side", "cell", "repetition", "began_ms", "driver"]);
  const names = [...new Set(figures.flatMap((line) => Object.keys(line).filter((name) => !own.has(name) && typeof line[name] === "number")))];
  const groups = Map.groupBy(figures, (line) => `${line.cell}\u0000${line.side}`);
  const rows = [...groups].map(([key, group]) => {
    const cells = names.map((name) => {
      const values = group.map((line) => line[name]).filter((value) => typeof value === "number");
      return values.length ? `${+median(values).toPrecision(4)}` : "–";
    });
    return [...key.split("\u0000"), `${group.length}`, ...cells];
  });
  const head = ["cell", "side", "repetitions", ...names.map((name) => name.replaceAll("_", " "))];
  show("bench", el("p", { class: "note" }, "Medians over the repetitions."), table(head, rows, ""));
}

$("report").addEventListener("change", async (event) => {
  const file = event.target.files[0];
  if (!file) return;
  try {
    if (file.size > REPORT_BYTES_MAX) throw new Error("it is too large to be a report");
    const text = await file.text();
    if (text.trimStart().startsWith("<")) showHtmlReport(text); else showResults(text);
  } catch (error) {
    show("bench", el("p", { class: "err", role: "alert" }, `${file.name} cannot be shown: ${error.message}`));
  }
});

// Asking.
const history = { columns: [], rows: [], period_s: 5 };
let latest = null;

async function ask(path) {
  const answer = await fetch(path, { credentials: "same-origin" });
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.error), { status: answer.status });
  return said;
}

function askForLogin(why) {
  $("login").hidden = false;
  $("facts").hidden = true;
  $("logout").hidden = true;
  $("state").textContent = why;
  document.title = "Log in – Nacre";
}

/** What is shown is of earlier, and says so. */
function notUpToDate(why) {
  $("facts").classList.add("stale");
  $("state").textContent = `Not up to date: ${why}`;
  document.title = "Not up to date – Nacre";
}

function render(facts) {
  latest = facts;
  $("cluster").textContent = facts.fsid;
  document.title = `${facts.health.status} – Nacre`;
  $("facts").classList.remove("stale");
  showHealth(facts.health);
  showNow(facts);
  showRecovery(facts);
  showMap(facts.osds);
  showHeat(facts.osds);
  showSlow(facts.slow_requests);
  showPools(facts.pools);
  showImages(facts);
  showClients(facts.clients);
  show("history", CHARTS.map(([title, unit, series]) => chart(title, unit, series, history, facts.at)));
  $("state").textContent = `As of ${new Date(facts.at * 1000).toLocaleTimeString()}, ${facts.version}`;
}

async function poll() {
  try {
    const since = history.rows.at(-1)?.[0] ?? 0;
    const [facts, more] = await Promise.all([ask("api/overview"), ask(`api/history?after=${since}`)]);
    Object.assign(history, { columns: more.columns, period_s: more.period_s });
    history.rows = [...history.rows, ...more.rows].slice(-HISTORY_ROWS_MAX);
    render(facts);
    $("facts").hidden = false;
    $("login").hidden = true;
  } catch (error) {
    if (error.status === 401) return askForLogin("Who looks from elsewhere must log in.");
    notUpToDate(error.message);
  }
  setTimeout(poll, POLL_MS);
}

$("work").addEventListener("change", () => latest && showHeat(latest.osds));
$("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = JSON.stringify({ name: $("name").value, key: $("key").value });
  const answer = await fetch("api/login", { method: "POST", headers: { "Content-Type": "application/json" }, body });
  if (!answer.ok) {
    $("login-error").textContent = (await answer.json()).error;
    return;
  }
  $("key").value = "";
  $("login-error").textContent = "";
  begin();
});
$("logout").addEventListener("click", async () => {
  await fetch("api/logout", { method: "POST", headers: { "Content-Type": "application/json" } });
  location.reload();
});

async function begin() {
  try {
    const login = await ask("api/login");
    if (login.needs_login && login.name === null) return askForLogin("Who looks from elsewhere must log in.");
    $("logout").hidden = !login.needs_login;
    poll();
  } catch (error) {
    notUpToDate(error.message);
    setTimeout(begin, POLL_MS);
  }
}
begin();
