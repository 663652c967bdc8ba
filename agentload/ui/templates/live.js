"use strict";
// Without this script the page reloads itself now and then; with it, the running part is updated every two seconds.
(() => {
  const EVERY_MS = 2000;
  const part = document.querySelector("[data-live]");
  if (!part) return;
  const token = document.documentElement.dataset.token;
  let drawn = null, silent = false;

  const look = async () => {
    if (document.hidden) return;
    let answer, text;
    try {
      answer = await fetch(part.dataset.live, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      text = await answer.text();
    } catch {
      if (!silent) part.insertAdjacentHTML("afterbegin", '<p class="kind stale">The server does not answer; this is its last state.</p>');
      silent = true;
      drawn = null;
      return;
    }
    silent = false;
    // A block pair was stored, or a run started or ended: the rest of the page has changed too. Do not reload during a selection.
    if (answer.headers.get("X-Agentload-Stamp") !== token && !String(getSelection())) { location.reload(); return; }
    if (text !== drawn) part.innerHTML = text; // our own template, which escapes every value
    drawn = text;
  };
  setInterval(look, EVERY_MS);
  document.addEventListener("visibilitychange", look);
})();
