"use strict";
// Labelling page: one example at a time. Every answer is sent at once, and the reply that it is saved has the next example.

const $ = (id) => document.getElementById(id);
const SHOWN = 9; // buttons for classes, each with a key; with more classes there is a search field
const SOME = 50; // with at most so many classes, the first ones are offered before anything is typed

const state = {
  task: "classification", classes: null, annotator: null,
  number: null,      // number of the current example
  seen: false,       // whether its picture is visible: an example cannot be answered unseen
  busy: false,       // whether a request is running
  matches: [],       // classes on the buttons
  marked: 0,         // index of the one that Enter selects
  recent: [],        // last answered classes
  keys: new Map(),   // key → class
  asked: null,       // answer to confirm
};

// -- the server --------------------------------------------------------------------------------------------

async function ask(what, body) {
  const answer = await fetch(what, body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ annotator: state.annotator, ...body }),
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
    else show(next, body.label);
  } catch (error) {
    const offline = error instanceof TypeError;
    showMessage(offline ? "Not saved: the server does not respond. Try again when it is running." : error.message, true);
  } finally {
    busy(false);
  }
}

function answer(label) {
  if (state.busy || !state.seen || state.number === null) return;
  if (label !== null && state.classes && state.classes.length > SHOWN) {
    state.recent = [label, ...state.recent.filter((name) => name !== label)].slice(0, SHOWN);
  }
  send("answer", { number: state.number, label });
}

const undo = () => send("undo", {});

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
  const finished = next.number === null;
  only(finished ? "end" : "work");
  state.number = next.number;
  $("stage").dataset.number = next.number;
  if (finished) return showEnd(next);
  if (next.note) showMessage(next.note, true);
  else if (next.undone) showMessage(`Undone: ${inWords(next.undone.label)}`);
  else if (next.saved) showMessage(`Saved: ${inWords(next.saved.label)}${typed?.includes(",") && state.task === "regression" ? ` (you wrote ${typed})` : ""}`);
  showRow(next.row);
  if (state.pictures) load(next.number);
  else { state.seen = true; $("picture").classList.add("away"); }
  if (state.pictures && next.upcoming !== null) new Image().src = `image/${next.upcoming}`;
  $("field").value = "";
  offer();
  if (state.classes === null && !coarse()) $("field").focus();
  else if (document.activeElement !== $("field") || !coarse()) $("stage").focus({ preventScroll: true });
}

// The shown columns of a row, as text alone: short ones as a table, long ones as paragraphs.
function showRow(row) {
  const list = document.createElement("dl");
  const made = (kind, text) => Object.assign(document.createElement(kind), { textContent: text });
  const long = [];
  for (const [name, text] of row) {
    if (state.long.has(name)) long.push(made("h2", name), made("p", text || "—"));
    else list.append(made("dt", name), made("dd", text || "—"));
  }
  $("row").replaceChildren(...long, ...(list.children.length ? [list] : []));
  $("row").hidden = !row.length;
  $("row").scrollTop = 0;
  $("stage").classList.toggle("both", row.length > 0 && state.pictures);
}

function showEnd({ progress, different }) {
  const rest = progress.total - progress.done;
  $("endtitle").textContent = rest ? "Nothing left for you" : "All labelled";
  const lines = [`You labelled ${progress.mine}.`];
  if (rest) lines.push(`${rest} more are waiting for other people.`);
  if (different) lines.push(`Answers differ on ${different}: see opacc labels list, and decide with opacc labels correct.`);
  $("endtext").textContent = lines.join(" ");
  $("endundo").disabled = !progress.mine;
  if (rest) setTimeout(() => { if (state.number === null && !state.busy) send("next", {}); }, 5000);
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
  $("stage").setAttribute("aria-busy", String(!can));
}

const coarse = () => matchMedia("(pointer: coarse)").matches;

// -- choices -----------------------------------------------------------------------------------------------

// Classes that match the typed text: first names that start with it, then words that do, then all others with it.
function search(text) {
  const room = matchMedia("(max-width: 600px)").matches ? 6 : SHOWN;
  const first = state.classes.length > SOME ? [] : state.classes.slice(0, SHOWN);
  if (!text) return [...new Set([...state.recent, ...first])].slice(0, room);
  const wanted = text.toLowerCase();
  const ranked = [[], [], []];
  for (const [i, name] of state.folded.entries()) {
    const at = name.indexOf(wanted);
    if (at < 0) continue;
    ranked[at === 0 ? 0 : /[\s_\-/.,]/.test(name[at - 1]) ? 1 : 2].push(state.classes[i]);
    if (ranked[0].length === SHOWN) break;
  }
  const exact = ranked[0].findIndex((name) => name.toLowerCase() === wanted);
  if (exact > 0) ranked[0].unshift(...ranked[0].splice(exact, 1));
  return ranked.flat().slice(0, room);
}

function offer() {
  state.keys = new Map();
  if (state.classes === null) { $("choices").replaceChildren(); return enable(); }
  state.matches = state.single ? state.classes : search($("field").value.trim());
  state.marked = 0;
  const buttons = state.matches.map((name, i) => {
    const button = document.createElement("button");
    button.type = "button";
    if (!state.numbered) { // names with leading digits are typed, so digits are no keys
      const key = state.single ? name.toLowerCase() : String(i + 1);
      state.keys.set(key, name);
      button.append(Object.assign(document.createElement("kbd"), { textContent: key }));
      button.setAttribute("aria-keyshortcuts", key);
    }
    button.append(Object.assign(document.createElement("span"), { textContent: name }));
    button.title = name;
    button.addEventListener("click", () => answer(name));
    return button;
  });
  $("choices").replaceChildren(...buttons);
  $("choices").classList.toggle("single", state.single);
  mark();
  enable();
}

function mark() {
  const marking = !$("field").hidden && $("field").value.trim() !== "";
  $("choices").classList.toggle("typing", marking && state.digits);
  [...$("choices").children].forEach((button, i) => button.classList.toggle("chosen", marking && i === state.marked));
}

function enter() {
  const text = $("field").value.trim();
  if (state.classes === null) {
    if (text === "") return showMessage(state.task === "regression" ? "Type a number, or ? if you can’t tell." : "Type a label.", true);
    return answer(text);
  }
  if (!text) return;
  if (!state.matches.length) return showMessage(`No class is called ${text}.`, true);
  answer(state.matches[state.marked]);
}

// -- keys --------------------------------------------------------------------------------------------------

function onKey(event) {
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
  if (!typing && !$("field").hidden && event.key.length === 1 && event.key !== " ") $("field").focus();
}

function keyAction(event, typing, empty) {
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey) return undo;
  if (event.repeat && !key.startsWith("Arrow") && !"+-".includes(key)) return () => {}; // a held key answers once
  if (key === "Backspace" && (!typing || empty)) return undo;
  if (key === "?" && (!typing || empty)) return unsure;
  if (key === "Escape") return () => { $("field").value = ""; $("field").blur(); fit(); offer(); };
  if (typing && key === "Enter") return enter;
  if (typing && (key === "ArrowDown" || key === "ArrowUp")) return () => move(key === "ArrowDown" ? 1 : -1);
  const free = !typing || (state.classes !== null && !state.digits);
  if (free && state.keys.has(key)) return () => answer(state.keys.get(key));
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
  const num = state.matches.length;
  if (num) { state.marked = (state.marked + by + num) % num; mark(); }
}

function unsure() {
  if (!$("broken").hidden) state.seen = true; // a broken picture can only be answered "can’t tell"
  answer(null);
}

// -- the picture: fit, zoom, pan ---------------------------------------------------------------------------

const view = { scale: 1, x: 0, y: 0, fit: 1, width: 1, height: 1, whole: false };

function load(number) {
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
    $("wait").hidden = true;
    $("broken").hidden = false;
    $("broken").textContent = "This picture cannot be shown.";
    enable();
    try {
      const found = await fetch(`image/${number}`);
      if (!found.ok && state.number === number) $("broken").textContent = await found.text();
    } catch { /* the message above stays */ }
  };
  picture.src = `image/${number}`;
}

function fit() {
  const stage = $("stage").getBoundingClientRect();
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
  const stage = $("stage").getBoundingClientRect();
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
  const stage = $("stage").getBoundingClientRect();
  const [width, height] = [view.width * view.scale, view.height * view.scale];
  const kept = (at, room, size) => Math.min(Math.max(at, Math.min(room - size, room / 2 - size / 2)), Math.max(0, (room - size) / 2));
  view.x = kept(view.x + dx, stage.width, width);
  view.y = kept(view.y + dy, stage.height, height);
  place();
}

const toggle = () => (view.scale > view.fit * 1.01 ? fit() : zoomBy(4));

const fingers = new Map();

function onPointer(event) {
  if (event.target.closest(".zoom")) return;
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
    $("run").textContent = error.message;
    return;
  }
  Object.assign(state, { task: setup.task, classes: setup.classes, pictures: setup.pictures, long: new Set(setup.long) });
  $("run").textContent = setup.run;
  document.title = `Label ${setup.run}`;
  prepare();
  const name = setup.annotator ?? sessionStorage.getItem("annotator");
  if (name) return begin(name);
  only("name");
  $("namefield").focus();
}

function prepare() {
  const { classes } = state;
  const many = classes === null || classes.length > SHOWN;
  // Single digits or letters as classes: the key is the class itself.
  state.single = classes !== null && classes.length <= 26 && classes.every((name) => /^[0-9a-z]$/i.test(name)) &&
    new Set(classes.map((name) => name.toLowerCase())).size === classes.length;
  state.digits = classes !== null && classes.some((name) => /\d/.test(name)); // typed digits are part of a name
  state.numbered = !state.single && many && classes !== null && classes.some((name) => /^\d/.test(name));
  state.folded = classes?.map((name) => name.toLowerCase());
  $("field").hidden = state.single || !many;
  $("field").placeholder = classes === null ? (state.task === "regression" ? "Type a number" : "Type a label")
    : `Search ${classes.length.toLocaleString("en")} classes`;
  $("field").setAttribute("aria-label", $("field").placeholder);
  if (state.task === "regression") $("field").inputMode = "decimal";
  if (!many && !state.single) $("unsurekey").textContent = "0";
}

function begin(name) {
  state.annotator = name;
  sessionStorage.setItem("annotator", name);
  $("who").textContent = name;
  only("work");
  send("next", {});
}

$("nameform").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("namefield").value.trim();
  if (name) begin(name);
});
$("unsure").addEventListener("click", unsure);
$("yes").addEventListener("click", () => send("answer", state.asked));
$("undo").addEventListener("click", undo);
$("endundo").addEventListener("click", undo);
$("in").addEventListener("click", () => zoomBy(1.5));
$("out").addEventListener("click", () => zoomBy(1 / 1.5));
$("fit").addEventListener("click", toggle);
$("field").addEventListener("input", offer);
document.addEventListener("keydown", onKey);
for (const kind of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) $("stage").addEventListener(kind, onPointer);
$("stage").addEventListener("wheel", (event) => {
  event.preventDefault();
  zoomBy(Math.exp(-event.deltaY / 400), event.clientX, event.clientY);
}, { passive: false });
$("stage").addEventListener("dblclick", toggle);
new ResizeObserver(() => (view.scale > view.fit * 1.01 ? pan(0, 0) : fit())).observe($("stage"));
start();
