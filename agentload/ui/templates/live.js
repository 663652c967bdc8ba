"use strict";
// Without this script the page reloads itself now and then; with it, what is running is drawn anew every two seconds.
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
      if (!silent) part.insertAdjacentHTML("afterbegin", '<p class="kind stale">The server does not answer; what you see is the last it said.</p>');
      silent = true;
      drawn = null;
      return;
    }
    silent = false;
    // Another block pair is stored, or another run began or ended: the rest of the page has changed too. Not under a reader's hands.
    if (answer.headers.get("X-Agentload-Stamp") !== token && !String(getSelection())) { location.reload(); return; }
    if (text !== drawn) part.innerHTML = text; // our own template: it escapes every word
    drawn = text;
  };
  setInterval(look, EVERY_MS);
  document.addEventListener("visibilitychange", look);
})();
