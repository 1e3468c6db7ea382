// The theme follows the system until the reader chooses one. It is set at once, before anything is shown.

const themes = (() => {
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
  return (button) => {
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
  };
})();
