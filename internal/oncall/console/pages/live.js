// Keeps an open page current: its newest version takes the place of the one before, node by
// node, so that nothing that somebody is reading, has opened or is typing in is lost. Every
// page works without it.

// keys names each child of an element: by its own key, or as the nth of its kind.
function keys(parent) {
  const counts = {};
  return [...parent.childNodes].map((child) => {
    const own = child.nodeType === Node.ELEMENT_NODE && (child.dataset.key || child.id);
    if (own) return child.nodeName + " " + own;
    counts[child.nodeName] = (counts[child.nodeName] || 0) + 1;
    return child.nodeName + counts[child.nodeName];
  });
}

// morph makes the children of one element those of another. What stays is not moved.
function morph(from, to) {
  const names = keys(from);
  const before = [...from.childNodes];
  const known = new Map(before.map((child, i) => [names[i], child]));
  const wantedNames = keys(to);
  const stays = new Set(wantedNames);
  before.forEach((child, i) => stays.has(names[i]) && known.get(names[i]) === child || child.remove());
  let at = from.firstChild;
  [...to.childNodes].forEach((wanted, i) => {
    const have = known.get(wantedNames[i]);
    if (!have) {
      const added = from.insertBefore(document.importNode(wanted, true), at);
      if (added.dataset?.key) added.classList.add("fresh");
      return;
    }
    if (have === at) at = at.nextSibling;
    else from.insertBefore(have, at);
    become(have, wanted);
  });
}

// become makes a node like another of the same name.
function become(have, wanted) {
  if (have.nodeType !== Node.ELEMENT_NODE) {
    if (have.nodeValue !== wanted.nodeValue) have.nodeValue = wanted.nodeValue;
    return;
  }
  if (have.isEqualNode(wanted)) return;
  const kept = have.nodeName === "DETAILS" ? "open" : ""; // what a person opened stays open
  for (const { name } of [...have.attributes]) if (name !== kept && !wanted.hasAttribute(name)) have.removeAttribute(name);
  for (const { name, value } of wanted.attributes) if (name !== kept && have.getAttribute(name) !== value) have.setAttribute(name, value);
  if (have.nodeName !== "TEXTAREA" && have.nodeName !== "SELECT") morph(have, wanted); // those are somebody's
}

const main = document.getElementById("main");
const state = document.querySelector("[data-live-state]");
let tag = main?.dataset.tag;
const stale = document.querySelector("[data-stale]");
let wake = () => {};
let current = new Date();

// refresh asks for a newer version. It returns how long to wait until the next question: a slow page rests.
async function refresh() {
  const begun = performance.now();
  const asked = { headers: { "X-Part": "main", "If-None-Match": tag }, cache: "no-store", redirect: "manual" };
  const answer = await fetch(location.href, asked);
  if (answer.type === "opaqueredirect") throw new Error(401); // to the login of a proxy: the console redirects no page
  if (answer.headers.has("ETag")) {
    tag = answer.headers.get("ETag");
    const next = document.createElement("template");
    next.innerHTML = await answer.text();
    morph(main, next.content);
    const problems = document.getElementById("notices")?.dataset.problems;
    document.title = document.title.replace(/^(\(\d+\) )?/, problems > 0 ? `(${problems}) ` : "");
  } else if (answer.status !== 304) throw new Error(answer.status);
  return Math.max(2_000, 10 * (performance.now() - begun));
}

// listen refreshes the page for as long as somebody sees it.
async function listen() {
  for (;;) {
    let pause = 10_000;
    if (!document.hidden) {
      try {
        pause = await refresh();
        current = new Date();
        stale.hidden = true;
      } catch (error) {
        const why = error.message === "401" ? "your login has ended. Reload it to log in." : "the console does not answer. It is asked again.";
        const text = `This page is of ${current.toLocaleTimeString()}: ${why}`;
        if (stale.textContent !== text) stale.textContent = text; // said once
        stale.hidden = false;
      }
      state.hidden = !stale.hidden;
    }
    await new Promise((resolve) => {
      wake = resolve;
      setTimeout(resolve, pause);
    });
  }
}

// Until somebody chooses another, times are in the browser's zone.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (!document.cookie.includes("errand-zone=")) {
  document.cookie = `errand-zone=${zone}; path=/; max-age=34560000; samesite=lax`;
  if (tag && document.cookie.includes("errand-zone=")) location.reload();
}
const zones = document.getElementById("zones");
for (const name of [zone, ...Intl.supportedValuesOf("timeZone")]) zones?.append(new Option(name, name));

// Keys: / finds, a number opens a page, ? shows the list.
if (location.hash === "#word") document.getElementById("word")?.focus();
const list = document.getElementById("keys");
const help = document.querySelector("[data-keys]");
if (help) {
  help.hidden = false;
  help.addEventListener("click", () => list.showModal());
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select") || list.open) return;
  const page = document.querySelectorAll(".side nav a")[/^\d$/.test(event.key) ? event.key - 1 : -1];
  const word = document.getElementById("word");
  if (event.key === "?") list.showModal();
  else if (event.key === "/" && word) word.focus();
  else if (event.key === "/") location.assign("/find#word");
  else if (page) location.assign(page.href);
  else return;
  event.preventDefault();
});

if (tag) {
  document.addEventListener("visibilitychange", () => wake());
  listen();
}
