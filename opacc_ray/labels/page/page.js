"use strict";
// Labelling page: one example at a time. Every answer is sent at once, and the reply that it is saved has the next example.

const $ = (id) => document.getElementById(id);
const SHOWN = 9; // classes with a key; with more classes there is a search field
const LISTED = 300; // classes in the list at a time
const NEAREST = 5; // suggestions where no class matches

const state = {
  classes: null, numbers: false, pictures: true, long: new Set(), about: {}, annotator: null,
  number: null,      // number of the current example
  seen: false,       // whether its picture is visible: an example cannot be answered unseen
  busy: false,       // whether a request is running
  matches: [],       // classes on the buttons
  marked: 0,         // index of the one that Enter selects
  recent: [],        // last answered classes
  keys: new Map(),   // key → class
  asked: null,       // answer to confirm
  several: false,    // whether an answer is any number of classes
  picked: new Set(), // of these, the ones that are picked so far
  raw: false,        // whether answers are shown as they were written
  mine: null,        // my answer to this example that would be corrected, with its version
};

// -- the server --------------------------------------------------------------------------------------------

async function ask(what, body) {
  const answer = await fetch(what, body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ annotator: state.annotator, tab: self.tab, ...body }),
  });
  if (answer.status === 404) throw new Error("This address is no longer valid. Open the one that opacc label printed last.");
  const content = await answer.json();
  if (!answer.ok && !content.ask) throw new Error(content.error);
  return content;
}

// Send a request, and show the next example or a question; an error changes nothing but the message.
async function send(what, body) {
  if (state.busy) return;
  busy(true);
  showMessage("");
  $("ask").hidden = true;
  try {
    const next = await ask(what, body);
    if (next.ask) question(next, body);
    else {
      show(next, body.label);
      if (next.saved) tabs?.postMessage({ ...self, saved: body.number });
    }
  } catch (error) {
    const offline = error instanceof TypeError;
    if ($("end").hidden) showMessage(offline ? "Not saved: the server does not respond. Try again when it is running." : error.message, true);
    else {
      $("endtext").textContent = offline ? "Your answers are saved. The server does not respond; this page waits for it." : error.message;
      waitFor(5000);
    }
  } finally {
    busy(false);
  }
}

// At an end that may not be the last one, ask again later whether there is something to label.
let waiting;
function waitFor(milliseconds) {
  clearTimeout(waiting);
  waiting = setTimeout(() => (state.busy ? waitFor(milliseconds) : state.number === null && send("next", {})), milliseconds);
}

function answer(label) {
  if (state.busy || !state.seen || state.number === null) return;
  if (label !== null && state.classes && state.classes.length > SHOWN) {
    state.recent = [label, ...state.recent.filter((name) => name !== label)].slice(0, SHOWN);
  }
  send("answer", { number: state.number, label, ...(state.mine ? { over: state.mine.version } : {}) });
}

const undo = () => { if ($("end").hidden || !$("endundo").hidden) send("undo", {}); };

const inWords = (label) => (label === null ? "can’t tell" : label);

// Ask before an answer is saved: "no" has the focus, and changes nothing.
function question(asked, body) {
  state.asked = { ...body, over: asked.over ?? body.over, sure: asked.sure ?? body.sure };
  showMessage(asked.ask, true);
  $("no").textContent = asked.sure ? "Correct it" : "Keep it";
  $("yes").textContent = asked.sure ? "Save anyway" : `Change it to ${inWords(body.label)}`;
  $("no").onclick = asked.sure ? correct : () => send("next", {});
  $("ask").hidden = false;
  $("no").focus();
}

function correct() {
  $("ask").hidden = true;
  showMessage("");
  $("field").focus();
  $("field").select();
}

// -- the example -------------------------------------------------------------------------------------------

function show(next, typed) {
  const { done, total, mine } = next.progress;
  $("count").textContent = `${done} of ${total}`;
  $("count").title = `${mine} by you`;
  $("bar").style.width = `${total ? (100 * done) / total : 100}%`;
  const bar = $("bar").parentElement;
  bar.setAttribute("aria-valuemax", total);
  bar.setAttribute("aria-valuenow", done);
  const finished = next.number === null, waited = !$("end").hidden;
  only(finished ? "end" : "work");
  state.number = next.number;
  state.mine = next.mine ?? null;
  showLast(next.last);
  $("stage").dataset.number = next.number;
  if (finished) return showEnd(next);
  if (next.note) showMessage(next.note, true);
  else if (next.mine && !next.undone) showMessage(`You answered ${inWords(next.mine.label)}. Answer again to correct it, or press Esc to go on.`);
  else if (next.undone) showMessage(`Undone: ${inWords(next.undone.label)}`);
  else if (next.saved) showMessage(`Saved: ${inWords(next.saved.label)}${typed?.includes(",") && state.numbers ? ` (you wrote ${typed})` : ""}`);
  else if (waited) showMessage(`${total - done} more to answer.`);
  showRow(next.row, next.rendered);
  if (state.pictures) load(next.number);
  else { state.seen = true; $("picture").classList.add("away"); }
  if (state.pictures && next.upcoming !== null) new Image().src = `image/${next.upcoming}`;
  $("field").value = "";
  state.picked = new Set(state.mine?.label ? state.mine.label.split("|").filter((name) => name !== "none") : []);
  offer();
  if (state.classes === null && !coarse()) $("field").focus();
  else if (document.activeElement !== $("field") || !coarse()) $("stage").focus({ preventScroll: true });
}

const made = (kind, text, ...inside) => {
  const element = Object.assign(document.createElement(kind), text === null ? {} : { textContent: text });
  element.append(...inside);
  return element;
};

// The shown columns of a row: short ones as a table, long ones as paragraphs, answers side by side, as Markdown or raw.
function showRow(row, rendered) {
  const pair = made("div", null), parts = [];
  pair.className = "pair";
  for (const [name, text] of row) {
    if (rendered[name]) {
      const own = state.raw || !text ? made("p", text || "—") : made("div", null, ...rendered[name].map(built));
      const given = made("div", null, made("h2", name), own);
      if (own.tagName === "DIV") own.className = "markdown";
      given.className = "given";
      pair.append(given);
    } else if (state.long.has(name)) parts.push(made("div", null, made("h2", name), made("p", text || "—")));
    else {
      if (parts.at(-1)?.tagName !== "DL") parts.push(made("dl", null));
      parts.at(-1).append(made("dt", name), made("dd", text || "—"));
    }
  }
  const raw = made("button", state.raw ? "Show as Markdown" : "Show raw text");
  raw.type = "button";
  raw.className = "raw";
  raw.onclick = () => { state.raw = !state.raw; showRow(row, rendered); };
  $("row").replaceChildren(...parts, ...(pair.children.length ? [pair, raw] : []));
  $("row").hidden = !row.length;
  $("row").scrollTop = 0;
  $("stage").classList.toggle("both", row.length > 0 && state.pictures);
}

// My last answers, newest first; a click shows the example again.
function showLast(last) {
  const items = last.map(({ number, label, title }) => {
    const button = made("button", null);
    button.type = "button";
    if (state.pictures) button.append(Object.assign(document.createElement("img"), { src: `image/${number}`, alt: "" }));
    button.append(made("span", null, made("b", inWords(label)), ...(title ? [made("small", title)] : [])));
    if (number === state.number) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => send("again", { number }));
    return made("li", null, button);
  });
  $("last").replaceChildren(...items);
  $("history").hidden = !last.length;
}

function showEnd({ progress, different, more }) {
  const rest = progress.total - progress.done, title = rest ? "Nothing left for you" : more ? "This round is done" : "All labelled";
  $("endtitle").textContent = title;
  const lines = [`${rest || more ? "So far" : `Thank you, ${state.annotator}:`} ${progress.mine} of ${progress.total} answers are yours.`];
  if (rest) lines.push(`${rest} more ${rest === 1 ? "is" : "are"} waiting for other people; what nobody answers comes back after a quarter of an hour.${more ? " Another round may follow: leave this page open." : ""}`);
  else if (more) lines.push("The next round is being chosen; leave this page open.");
  else lines.push("The person who runs this page has been told.", $("inbox").hidden ? "You can close it." : "The inbox has the other rounds.");
  if (different) lines.push(`Answers differ on ${different}: see opacc labels list, and decide with opacc labels correct.`);
  $("endtext").textContent = lines.join(" ");
  $("endundo").hidden = !rest && more; // a round is being drawn from these answers
  $("endundo").disabled = !progress.mine;
  if (rest || more) waitFor(rest ? 5000 : 1000);
}

function only(id) {
  for (const other of ["work", "name", "end"]) $(other).hidden = other !== id;
}

function showMessage(text, wrong = false) {
  $("message").textContent = text;
  $("message").classList.toggle("wrong", wrong);
}

function busy(on) {
  state.busy = on;
  enable();
}

function enable() {
  const can = !state.busy && state.seen;
  for (const button of $("choices").children) button.disabled = !can;
  $("unsure").disabled = state.busy || state.number === null || !(state.seen || !$("broken").hidden);
  $("undo").disabled = state.busy;
  $("save").disabled = !can;
  $("save").firstChild.textContent = state.picked.size ? `Save ${state.picked.size}` : "Save: none of them";
  $("stage").setAttribute("aria-busy", String(!can));
}

const coarse = () => matchMedia("(pointer: coarse)").matches;

// -- choices -----------------------------------------------------------------------------------------------

// Classes that match the typed text: first names that start with it, then words that do, then all others with it.
function search(text) {
  if (!text) return [...new Set([...state.recent, ...state.classes.slice(0, LISTED)])];
  const wanted = text.toLowerCase();
  const ranked = [[], [], []];
  for (const [i, name] of state.folded.entries()) {
    const at = name.indexOf(wanted);
    if (at >= 0) ranked[at === 0 ? 0 : /[\s_\-/.,]/.test(name[at - 1]) ? 1 : 2].push(state.classes[i]);
  }
  const exact = ranked[0].findIndex((name) => name.toLowerCase() === wanted);
  if (exact > 0) ranked[0].unshift(...ranked[0].splice(exact, 1));
  return ranked.flat();
}

// Classes whose spelling is closest: those that share most pairs of letters.
function nearest(text) {
  const pairs = (name) => new Set([...` ${name}`].map((letter, i, all) => letter + (all[i + 1] ?? " ")));
  const wanted = pairs(text.toLowerCase());
  const alike = (name) => {
    const own = pairs(name);
    return (2 * [...own].filter((pair) => wanted.has(pair)).length) / (own.size + wanted.size);
  };
  const scored = state.folded.map((name, i) => [alike(name), state.classes[i]]).filter(([score]) => score > 0.2);
  return scored.sort((a, b) => b[0] - a[0]).slice(0, NEAREST).map(([, name]) => name);
}

function offer() {
  state.keys = new Map();
  if (state.classes === null) { $("choices").replaceChildren(); return enable(); }
  const text = $("field").value.trim();
  state.matches = state.many ? search(text) : state.classes;
  state.marked = 0;
  const near = text && !state.matches.length ? nearest(text) : [];
  const listed = state.matches.slice(0, LISTED);
  $("choices").replaceChildren(...listed.map((name, i) => choice(name, i)), ...near.map((name) => choice(name, SHOWN)));
  $("choices").scrollTop = 0;
  const left = state.many && !text ? state.classes.length - listed.length : state.matches.length - listed.length;
  const none = text && state.many && !state.matches.length;
  $("more").hidden = !(none || left > 0);
  $("more").textContent = none ? `No class is called ${text}. ${near.length ? "The nearest are listed." : "Esc shows all classes."}` : `${left.toLocaleString("en")} more: type to search`;
  mark();
  enable();
}

function choice(name, i) {
  const button = made("button", null);
  button.type = "button";
  if (i < SHOWN || !state.many) { // names with leading digits are typed, so digits are no keys
    const key = state.single ? name.toLowerCase() : String(i + 1);
    if (!state.numbered) {
      state.keys.set(key, name);
      button.append(made("kbd", key));
      button.setAttribute("aria-keyshortcuts", key);
    }
  }
  const text = state.many ? null : state.about[name]?.text;
  button.append(made("span", name, ...(text ? [made("small", text)] : [])));
  button.title = state.about[name]?.text ?? name;
  if (state.several) button.setAttribute("aria-pressed", String(state.picked.has(name)));
  button.addEventListener("click", () => pick(name));
  return button;
}

// Answer by a class, or add it to the ones that are picked; Enter saves these.
function pick(name) {
  if (!state.several) return answer(name);
  if (state.busy || !state.seen) return;
  if (!state.picked.delete(name)) state.picked.add(name);
  $("field").value = "";
  offer();
}

const save = () => answer(state.classes.filter((name) => state.picked.has(name)).join("|") || "none");

function mark() {
  const marking = !$("entry").hidden && $("field").value.trim() !== "";
  $("choices").classList.toggle("typing", marking && state.digits);
  [...$("choices").children].forEach((button, i) => {
    button.classList.toggle("chosen", marking && i === state.marked && state.matches.length > 0);
    if (marking && i === state.marked) button.scrollIntoView({ block: "nearest" });
  });
}

function enter() {
  const text = $("field").value.trim();
  if (state.classes === null) {
    if (text === "") return showMessage(state.numbers ? "Type a number, or ? if you can’t tell." : "Type a label.", true);
    return answer(text);
  }
  if (!text) return state.several ? save() : undefined;
  if (!state.matches.length) return showMessage(`No class is called ${text}.`, true);
  pick(state.matches[state.marked]);
}

// -- keys --------------------------------------------------------------------------------------------------

function onKey(event) {
  if ($("guide").open) return;
  if ($("work").hidden) {
    if (!$("end").hidden && event.key === "Backspace") { event.preventDefault(); undo(); }
    return;
  }
  if (event.isComposing || event.altKey || event.metaKey || (event.ctrlKey && event.key.toLowerCase() !== "z")) return;
  const typing = document.activeElement === $("field");
  const empty = $("field").value === "";
  const act = keyAction(event, typing, empty);
  if (act) { event.preventDefault(); act(); return; }
  // Other letters are typed into the search field.
  if (!typing && !$("entry").hidden && event.key.length === 1 && event.key !== " ") $("field").focus();
}

function keyAction(event, typing, empty) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey) return undo;
  if (event.repeat && !key.startsWith("Arrow") && !"+-".includes(key)) return () => {}; // a held key answers once
  if (key === "Backspace" && (!typing || empty)) return undo;
  if (key === "?" && (!typing || empty)) return unsure;
  if (key === "Escape" && state.mine) return () => send("next", {});
  if (key === "Escape") return () => { $("field").value = ""; $("field").blur(); fit(); offer(); };
  if (typing && key === "Enter") return enter;
  if (state.several && key === "Enter" && !document.activeElement?.closest("button, summary, a")) return save;
  if (typing && (key === "ArrowDown" || key === "ArrowUp")) return () => move(key === "ArrowDown" ? 1 : -1);
  const free = !typing || (state.classes !== null && !state.digits);
  if (free && state.keys.has(key)) return () => pick(state.keys.get(key));
  const page = { PageUp: -0.85, PageDown: 0.85 }[key] ?? (typing || state.pictures ? 0 : { ArrowUp: -0.1, ArrowDown: 0.1 }[key]);
  if (page) return () => $("row").scrollBy(0, page * $("row").clientHeight);
  if (typing) return null;
  if (key === "0" && !state.keys.has("0")) return unsure;
  if (key === "/") return () => $("field").focus();
  if (key === "z" && !state.keys.has("z")) return toggle;
  if (key === "+" || key === "=") return () => zoomBy(1.5);
  if (key === "-") return () => zoomBy(1 / 1.5);
  const step = { ArrowLeft: [80, 0], ArrowRight: [-80, 0], ArrowUp: [0, 80], ArrowDown: [0, -80] }[key];
  return step ? () => pan(...step) : null;
}

function move(by) {
  const num = Math.min(state.matches.length, LISTED);
  if (num) { state.marked = (state.marked + by + num) % num; mark(); }
}

function unsure() {
  if (!$("broken").hidden) state.seen = true; // a broken picture can only be answered "can’t tell"
  answer(null);
}

// -- the picture: fit, zoom, pan ---------------------------------------------------------------------------

const view = { scale: 1, x: 0, y: 0, fit: 1, width: 1, height: 1, whole: false };

// Show the picture of an example; one that fails once is asked for again, and as long as the server is away.
function load(number, again = false) {
  const picture = $("picture");
  state.seen = false;
  view.whole = false;
  picture.classList.add("away");
  $("broken").hidden = true;
  const slow = setTimeout(() => { $("wait").hidden = state.seen; }, 250);
  picture.onload = () => {
    clearTimeout(slow);
    $("wait").hidden = true;
    if (!view.whole) {
      view.width = picture.naturalWidth;
      view.height = picture.naturalHeight;
      picture.style.width = `${view.width}px`;
      picture.style.height = `${view.height}px`;
      fit();
      state.seen = true;
      picture.classList.remove("away");
      enable();
    }
  };
  picture.onerror = async () => {
    if (view.whole) { view.whole = false; picture.src = `image/${number}`; return; }
    clearTimeout(slow);
    let ok = false, reason = "";
    try {
      const found = await fetch(`image/${number}`);
      ok = found.ok;
      reason = ok ? "This picture cannot be shown." : await found.text();
    } catch {
      $("wait").hidden = false;
      setTimeout(() => { if (state.number === number && !state.seen) load(number); }, 1000);
      return;
    }
    if (state.number !== number) return;
    if (ok && !again) { load(number, true); return; }
    $("wait").hidden = true;
    $("broken").hidden = false;
    $("broken").textContent = reason;
    enable();
  };
  picture.src = `image/${number}`;
}

// The part of the stage that the picture has.
function room() {
  const { left, top, width, height } = $("stage").getBoundingClientRect();
  return { left, top, width, height: $("stage").classList.contains("both") ? 0.62 * height : height };
}

function fit() {
  const stage = room();
  const pad = Math.min(24, stage.width / 20);
  view.fit = Math.min((stage.width - 2 * pad) / view.width, (stage.height - 2 * pad) / view.height, 12);
  view.scale = view.fit;
  view.x = (stage.width - view.width * view.scale) / 2;
  view.y = (stage.height - view.height * view.scale) / 2;
  place();
}

function place() {
  const picture = $("picture");
  picture.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.scale})`;
  picture.classList.toggle("sharp", view.scale > 2 && !(view.width > 400 && !view.whole));
  const zoomed = view.scale > view.fit * 1.01;
  $("stage").classList.toggle("zoomed", zoomed);
  if (zoomed && !view.whole && state.seen && view.scale * devicePixelRatio > 1) { // load all pixels once they become visible
    view.whole = true;
    picture.src = `image/${state.number}/whole`;
  }
}

function zoomBy(factor, x, y) {
  const stage = room();
  const [cx, cy] = x === undefined ? [stage.width / 2, stage.height / 2] : [x - stage.left, y - stage.top];
  const scale = Math.min(Math.max(view.scale * factor, view.fit), 40 * view.fit);
  if (scale <= view.fit * 1.001) return fit();
  view.x = cx - ((cx - view.x) * scale) / view.scale;
  view.y = cy - ((cy - view.y) * scale) / view.scale;
  view.scale = scale;
  pan(0, 0);
}

function pan(dx, dy) {
  if (view.scale <= view.fit * 1.001) return;
  const stage = room();
  const [width, height] = [view.width * view.scale, view.height * view.scale];
  const kept = (at, space, size) => Math.min(Math.max(at, Math.min(space - size, space / 2 - size / 2)), Math.max(0, (space - size) / 2));
  view.x = kept(view.x + dx, stage.width, width);
  view.y = kept(view.y + dy, stage.height, height);
  place();
}

const toggle = () => (view.scale > view.fit * 1.01 ? fit() : zoomBy(4));

const fingers = new Map();

function onPointer(event) {
  if (!state.pictures || event.target.closest(".zoom, #row")) return;
  const before = fingers.get(event.pointerId);
  if (event.type === "pointerdown") {
    fingers.set(event.pointerId, event);
    $("stage").setPointerCapture(event.pointerId);
    return;
  }
  if (event.type !== "pointermove") { fingers.delete(event.pointerId); return; }
  if (!before) return;
  const other = [...fingers.entries()].find(([id]) => id !== event.pointerId)?.[1];
  if (other) {
    const apart = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
    zoomBy(apart(event) / Math.max(apart(before), 1), (event.clientX + other.clientX) / 2, (event.clientY + other.clientY) / 2);
  } else {
    pan(event.clientX - before.clientX, event.clientY - before.clientY);
  }
  fingers.set(event.pointerId, event);
}

// -- start -------------------------------------------------------------------------------------------------

async function start() {
  let setup;
  try {
    setup = await ask("setup");
  } catch (error) {
    $("question").textContent = error.message;
    return;
  }
  const { classes, numbers, pictures, about, several } = setup;
  Object.assign(state, { classes, numbers, pictures, about, several, long: new Set(setup.long) });
  $("question").textContent = setup.question;
  $("question").title = setup.run;
  document.title = `Label ${setup.run}`;
  $("inbox").hidden = !setup.inbox;
  prepare(setup);
  prepareGuide(setup);
  const name = setup.annotator ?? sessionStorage.getItem("annotator");
  if (name) return begin(name);
  only("name");
  $("namefield").focus();
}

function prepare({ unit, range, counts }) {
  const { classes } = state;
  // Single digits or letters as classes: the key is the class itself.
  state.single = classes !== null && classes.length <= 26 && classes.every((name) => /^[0-9a-z]$/i.test(name)) &&
    new Set(classes.map((name) => name.toLowerCase())).size === classes.length;
  state.many = classes !== null && !state.single && classes.length > SHOWN;
  state.digits = classes !== null && classes.some((name) => /\d/.test(name)); // typed digits are part of a name
  state.numbered = state.many && classes.some((name) => /^\d/.test(name));
  state.folded = classes?.map((name) => name.toLowerCase());
  $("entry").hidden = !(state.many || classes === null);
  const kind = counts.length ? `Type ${counts.join(", ")}, such as ${counts.map((_, i) => (i ? 0 : 3)).join(" ")}` : state.numbers ? `Type a number${range ? ` from ${range[0]} to ${range[1]}` : ""}` : "Type a label";
  $("field").placeholder = classes === null ? kind : `Search ${classes.length.toLocaleString("en")} classes`;
  $("field").setAttribute("aria-label", `${$("field").placeholder}${unit ? `, in ${unit}` : ""}`);
  $("unit").textContent = unit ?? "";
  if (state.numbers) $("field").inputMode = "decimal";
  if (!state.many && !state.single && classes !== null) $("unsurekey").textContent = "0";
  $("choices").classList.toggle("single", state.single);
  $("choices").classList.toggle("many", state.many);
  $("save").hidden = !state.several;
  $("zoom").hidden = !state.pictures;
  $("stage").classList.toggle("text", !state.pictures);
  $("history").open = matchMedia("(min-width: 701px) and (min-height: 481px)").matches;
}

// -- the guide --------------------------------------------------------------------------------------------------

function prepareGuide({ question, guide }) {
  const described = Object.entries(state.about);
  if (!guide.length && !described.length) return;
  $("help").hidden = false;
  const parts = [...(question ? [made("h2", question)] : []), ...guide.map(built)];
  described.forEach(([name, { text, pictures }], index) => {
    const shown = Array.from({ length: pictures }, (_, i) =>
      Object.assign(document.createElement("img"), { src: `example/${index}/${i}`, alt: `example of ${name}`, loading: "lazy" }));
    const own = made("div", null, made("h3", name), ...(text ? [made("p", text)] : []), ...(shown.length ? [made("div", null, ...shown)] : []));
    own.className = "class";
    parts.push(own);
  });
  $("guidetext").replaceChildren(...parts);
  $("guidetext").tabIndex = 0;
}

// An element of the server's tree, whose texts are text: it names tags, and reads no HTML.
const built = (part) => (typeof part === "string" ? part : Object.assign(made(part[0], null, ...part.slice(2).map(built)), part[1]));

const showGuide = () => { if (!$("help").hidden && !$("guide").open) { $("guide").showModal(); $("close").focus(); } };

// -- other tabs of the same person -----------------------------------------------------------------------------

const self = { tab: Math.random(), name: null };
const tabs = typeof BroadcastChannel === "function" ? new BroadcastChannel(`opacc ${location.pathname}`) : null;

if (tabs) tabs.onmessage = ({ data }) => {
  if (data.name !== state.annotator || data.tab === self.tab) return;
  if (data.gone) {
    $("tabs").hidden = true;
    if (state.number !== null) ask("next", {}).catch(() => {}); // it gave back what is shown here as well
    return;
  }
  $("tabs").hidden = false;
  if (data.hello) tabs.postMessage({ ...self });
  if (data.saved === state.number && !state.busy && !state.mine) send("next", {}); // answered there: go on here
};
addEventListener("pagehide", () => {
  const body = JSON.stringify({ annotator: state.annotator, tab: self.tab });
  if (state.annotator) navigator.sendBeacon("release", new Blob([body], { type: "application/json" }));
  tabs?.postMessage({ ...self, gone: true });
});
addEventListener("pageshow", ({ persisted }) => { if (persisted && state.number !== null) send("next", {}); });

function begin(name) {
  state.annotator = name;
  sessionStorage.setItem("annotator", name);
  $("who").textContent = self.name = name;
  only("work");
  tabs?.postMessage({ ...self, hello: true });
  if (!$("help").hidden && !sessionStorage.getItem(`guided ${location.pathname}`)) {
    sessionStorage.setItem(`guided ${location.pathname}`, "yes");
    showGuide();
  }
  send("next", {});
}

$("nameform").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("namefield").value.trim();
  if (name) begin(name);
});
$("help").addEventListener("click", showGuide);
$("close").addEventListener("click", () => $("guide").close());
$("unsure").addEventListener("click", unsure);
$("yes").addEventListener("click", () => send("answer", state.asked));
$("save").addEventListener("click", save);
$("undo").addEventListener("click", undo);
$("endundo").addEventListener("click", undo);
$("in").addEventListener("click", () => zoomBy(1.5));
$("out").addEventListener("click", () => zoomBy(1 / 1.5));
$("fit").addEventListener("click", toggle);
$("field").addEventListener("input", offer);
document.addEventListener("keydown", onKey);
for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) $("stage").addEventListener(kind, onPointer);
$("stage").addEventListener("wheel", (event) => {
  if (!state.pictures || event.target.closest("#row")) return;
  event.preventDefault();
  zoomBy(Math.exp(-event.deltaY / 400), event.clientX, event.clientY);
}, { passive: false });
$("stage").addEventListener("dblclick", (event) => { if (state.pictures && !event.target.closest("#row")) toggle(); });
new ResizeObserver(() => (view.scale > view.fit * 1.01 ? pan(0, 0) : fit())).observe($("stage"));
start();
