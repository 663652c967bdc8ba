"use strict";
// Without this script the page says the same; with it, charts answer to pointer and keyboard.
(() => {
  const tip = document.getElementById("tip");
  const REACH = 36; // pixels within which a pointer means a mark

  const show = (mark) => {
    const box = mark.getBoundingClientRect();
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.x + box.width / 2 - own.width / 2), document.documentElement.clientWidth - own.width - 8);
    const above = box.y - own.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : box.bottom + 10}px`;
  };

  for (const figure of document.querySelectorAll("figure")) {
    const svg = figure.querySelector("svg.chart");
    let current = null;
    for (const title of svg.querySelectorAll("g title")) {
      title.parentNode.dataset.tip = title.textContent;
      title.remove();
    }
    const groups = () => {
      const series = [...svg.querySelectorAll(".series:not(.off)")].map((group) => [...group.querySelectorAll("[data-tip]")]);
      return [...series, [...svg.querySelectorAll(".field[data-tip]")]].filter((marks) => marks.length);
    };
    const choose = (mark) => {
      current?.classList.remove("at");
      current = mark;
      if (!mark) { tip.hidden = true; return; }
      mark.classList.add("at");
      show(mark);
    };
    svg.addEventListener("pointermove", (event) => {
      let nearest = null, least = REACH;
      for (const mark of groups().flat()) {
        const box = mark.getBoundingClientRect();
        const inside = mark.matches(".field") && event.clientX >= box.x && event.clientX <= box.right && event.clientY >= box.y && event.clientY <= box.bottom;
        const distance = inside ? 0 : Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
        if (distance < least) { nearest = mark; least = distance; }
      }
      choose(nearest);
    });
    svg.addEventListener("pointerleave", () => choose(null));
    svg.addEventListener("blur", () => choose(null));
    svg.addEventListener("keydown", (event) => {
      const rows = groups();
      if (!rows.length) return;
      if (event.key === "Escape") { choose(null); return; }
      let row = rows.findIndex((marks) => marks.includes(current));
      let at = row < 0 ? -1 : rows[row].indexOf(current);
      switch (event.key) {
        case "ArrowRight": at += 1; break;
        case "ArrowLeft": at -= 1; break;
        case "Home": at = 0; break;
        case "End": at = Infinity; break;
        case "ArrowDown": row += 1; break;
        case "ArrowUp": row -= 1; break;
        default: return;
      }
      event.preventDefault();
      row = Math.min(Math.max(row, 0), rows.length - 1);
      choose(rows[row][Math.min(Math.max(at, 0), rows[row].length - 1)]);
    });
    const vega = figure.querySelector("button[data-vega]");
    if (vega) {
      vega.hidden = false;
      vega.addEventListener("click", () => {
        const whole = JSON.parse(vega.dataset.vega), link = document.createElement("a"), table = vega.previousElementSibling;
        whole.data.values = decodeURIComponent(table.href.slice(table.href.indexOf(",") + 1));
        link.href = URL.createObjectURL(new Blob([JSON.stringify(whole)], {type: "application/json"}));
        link.download = table.download.replace(/csv$/, "vl.json");
        link.click();
        URL.revokeObjectURL(link.href);
      });
    }
    for (const button of figure.querySelectorAll("button[data-arm]")) {
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        for (const part of svg.querySelectorAll(`.series.arm-${button.dataset.arm}, .band.arm-${button.dataset.arm}`)) part.classList.toggle("off", !shown);
        choose(null);
      });
    }
  }

  // A command is copied with a click; without a clipboard it is selected for the reader's own keys.
  for (const pre of document.querySelectorAll("pre")) {
    const box = document.createElement("div"), button = document.createElement("button");
    box.className = "command";
    button.type = "button";
    button.textContent = "Copy";
    pre.replaceWith(box);
    box.append(pre, button);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(pre.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(pre);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }

  // Paper has no clicks: print what is folded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const part of folded) part.open = true;
  });
  addEventListener("afterprint", () => { for (const part of folded) part.open = false; });
})();
