// Put everything in its place.

function printing(button) {
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const part of closed) part.open = true;
  });
  addEventListener("afterprint", () => {
    for (const part of closed) part.open = false;
  });
  button.addEventListener("click", () => print());
}

// The sections, behind a button where the screen is narrow.
function menu(button) {
  const bar = button.parentElement;
  const toggle = (open) => {
    bar.toggleAttribute("data-open", open);
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => toggle(!bar.hasAttribute("data-open")));
  for (const link of bar.querySelectorAll("nav a")) link.addEventListener("click", () => toggle(false));
}

function copying() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}

function replays(items, root) {
  let player = null;
  const place = el("div");
  const choose = (k) => {
    if (player) player.pause();
    place.replaceChildren();
    player = new Replay(items[k], place);
  };
  if (items.length > 1) root.append(el("div", { class: "controls" }, chooser("episode of", items.map((item) => item.label), 0, choose)));
  root.append(place);
  choose(0);
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  themes(document.getElementById("theme"));
  printing(document.getElementById("print"));
  menu(document.getElementById("menu"));
  copying();
  data.charts.forEach((chart, k) => new Curve(chart, document.querySelector(`[data-chart="${k}"]`)));
  const histograms = document.getElementById("histograms");
  for (const one of data.histograms) {
    if (data.histograms.length > 1) histograms.append(el("h3", {}, one.title));
    const place = el("div");
    histograms.append(place);
    new Histogram(one, place);
  }
  if (data.spending.length) new Spending(data.spending, document.getElementById("spendings"));
  if (data.replays.length) replays(data.replays, document.getElementById("replays"));
  document.documentElement.dataset.ready = "yes";
}

start();
