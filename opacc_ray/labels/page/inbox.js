"use strict";
// Inbox of several runs: what waits, and for whoever runs the page who has answered how many.

const $ = (id) => document.getElementById(id);
const made = (kind, text, ...inside) => {
  const element = Object.assign(document.createElement(kind), text === null ? {} : { textContent: text });
  element.append(...inside);
  return element;
};

function entry({ place, run, question, done, total, mine }, team) {
  const link = made("a", question ?? run);
  link.href = place === null ? "./" : `${place}/`;
  const bar = made("div", null, made("div", null));
  bar.className = "bar";
  bar.firstChild.style.width = `${total ? (100 * done) / total : 100}%`;
  const parts = [`${done} of ${total} answered`, mine ? `${mine} by you` : "", total === done ? "done" : ""];
  if (team) {
    if (team.twice) parts.push(`${team.twice} answered twice${team.alpha === null ? "" : `, alpha ${team.alpha.toFixed(2)}`}`);
    if (team.different) parts.push(`${team.different} differ`);
  }
  return made("li", null, link, ...(question ? [made("small", run)] : []), bar, made("p", parts.filter(Boolean).join(" · ")));
}

async function show() {
  try {
    const answer = await fetch("inbox.json");
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    $("who").textContent = found.name ?? "";
    $("runs").replaceChildren(...found.runs.map((run, i) => entry(run, found.team?.[i])));
    const waiting = found.runs.filter(({ done, total }) => done < total).length;
    $("message").textContent = waiting ? `${waiting} of ${found.runs.length} wait for answers.` : "Nothing waits for answers.";
    const rows = (found.team ?? []).flatMap(({ run, people }) => people.map((person) => [
      run, person.name, person.answers, person.today]));
    $("people").replaceChildren(...rows.map((cells) => made("tr", null, ...cells.map((text) => made("td", String(text))))));
    $("team").hidden = !rows.length;
  } catch (error) {
    $("message").textContent = error instanceof TypeError ? "The server does not respond." : error.message;
  }
}

show();
setInterval(show, 15000);
