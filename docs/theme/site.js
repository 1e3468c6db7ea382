"use strict";
// The theme follows the system until somebody chooses one; on a small screen the list of pages begins closed.
(() => {
  const order = ["automatic", "light", "dark"];
  let chosen = "automatic";
  try {
    chosen = localStorage.getItem("surefoot-theme") ?? "automatic";
  } catch {
    // Some browsers give a local file no storage; then the choice lasts as long as the page.
  }
  const set = (name) => {
    chosen = order.includes(name) ? name : "automatic";
    if (chosen === "automatic") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
  };
  set(chosen);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const named = () => { button.textContent = `Theme: ${chosen}`; };
    named();
    button.addEventListener("click", () => {
      set(order[(order.indexOf(chosen) + 1) % order.length]);
      named();
      try {
        localStorage.setItem("surefoot-theme", chosen);
      } catch {
        // As above.
      }
    });
    if (matchMedia("(max-width: 48rem)").matches) document.getElementById("pages").open = false;
  });
})();
