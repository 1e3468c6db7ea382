// The player: it moves only when asked to.

class Replay {
  constructor(data, root) {
    this.data = data;
    this.step = 0;
    this.playing = false;
    this.rate = data.kind === "picture" ? 15 : 25;
    const ranges = this.ranges();
    this.panels = data.panels.map((panel) => ({ panel, scene: sceneOf(data, panel, ranges), says: el("p") }));
    root.append(el("div", { class: "panels" }, ...this.panels.map(({ panel, scene, says }) =>
      el("div", { class: "panel", "data-panel": panel.role }, el("h3", {}, panel.title), scene.node, says))), this.controls(), ...[this.trace(), this.about()].filter(Boolean));
    this.show(data.start);
  }

  // All panels share one scale, so that noise looks as large as it is.
  ranges() {
    if (this.data.kind === "picture") return [];
    const all = this.data.panels.flatMap((panel) => panel.seen);
    return all[0].map((_, row) => {
      const values = all.map((state) => state[row]);
      const [low, high] = [Math.min(...values), Math.max(...values)];
      return high > low ? [low, high] : [low - 1, high + 1];
    });
  }

  controls() {
    this.button = el("button", { type: "button", "data-play": "" }, "Play");
    this.button.addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    const back = el("button", { type: "button", "aria-label": "one step back" }, "\u2190");
    const on = el("button", { type: "button", "aria-label": "one step forward" }, "\u2192");
    back.addEventListener("click", () => { this.pause(); this.show(this.step - 1); });
    on.addEventListener("click", () => { this.pause(); this.show(this.step + 1); });
    this.slider = el("input", { type: "range", min: 0, max: this.data.steps - 1, value: 0, step: 1 });
    this.slider.addEventListener("input", () => { this.pause(); this.show(Number(this.slider.value)); });
    this.count = el("output", {});
    const speeds = [["quarter speed", 0.25], ["normal speed", 1], ["double speed", 2]];
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.speed = calm ? 0.25 : 1;
    const pick = chooser("", speeds.map(([name]) => name), calm ? 0 : 1, (k) => { this.speed = speeds[k][1]; });
    pick.querySelector("select").setAttribute("aria-label", "speed");
    const scrub = el("label", { class: "grow" }, el("span", {}, "step ", this.count), this.slider);
    return el("div", { class: "controls" }, this.button, back, on, pick, scrub);
  }

  // The budget used, over the steps of the attacked episode.
  trace() {
    const panel = this.data.panels.find((one) => one.budget_used);
    if (!panel) return null;
    const root = svg("svg", { viewBox: "0 0 600 70", preserveAspectRatio: "none", role: "img", "aria-label": `Budget used over ${panel.steps} steps` });
    const x = scale(0, Math.max(1, this.data.steps - 1), 4, 596);
    const y = scale(0, this.data.budget, 64, 6);
    root.append(svg("path", { class: "ground", d: "M4 64H596" }), svg("path", { class: "trace", d: panel.budget_used.map((value, k) => `${k ? "L" : "M"}${x(k).toFixed(1)} ${y(value).toFixed(1)}`).join("") }));
    this.mark = svg("path", { class: "meanline" });
    root.append(this.mark);
    this.place = x;
    return el("div", { class: "used" }, el("span", { class: "note" }, `budget used, from 0 to ${plain(this.data.budget)}, by step`), root);
  }

  about() {
    const { coordinates, panels } = this.data;
    const parts = [...this.data.about];
    if (this.data.kind === "picture") parts.push("Pictures are clipped to what a screen can show.");
    else if (panels[0].seen[0].length < coordinates) parts.push(`The first ${panels[0].seen[0].length} of ${coordinates} numbers are drawn.`);
    return el("p", { class: "note" }, parts.join(" "));
  }

  show(step) {
    this.step = Math.max(0, Math.min(this.data.steps - 1, step));
    this.slider.value = String(this.step);
    this.count.textContent = `${this.step + 1} of ${this.data.steps}`;
    this.slider.setAttribute("aria-label", `step ${this.step + 1} of ${this.data.steps}`);
    if (this.mark) this.mark.setAttribute("d", `M${this.place(this.step)} 2V68`);
    for (const { panel, scene, says } of this.panels) {
      const over = this.step >= panel.steps;
      const now = Math.min(this.step, panel.steps - 1);
      const parts = [scene.show(now)];
      if (panel.budget_used) parts.push(`budget used: ${plain(Number(panel.budget_used[now].toPrecision(3)))} of ${plain(this.data.budget)}`);
      const added = panel.perturbation?.[now];
      if (added && !over) parts.push(`perturbation: ${plain(Number(Math.hypot(...added).toPrecision(2)))} (l2)`);
      if (over) parts.push(`over after ${panel.steps} steps`);
      says.textContent = parts.filter(Boolean).join("; ");
    }
  }

  play() {
    if (this.step >= this.data.steps - 1) this.show(0);
    this.playing = true;
    this.button.textContent = "Pause";
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const steps = Math.floor(((now - before) / 1000) * this.rate * this.speed);
      if (steps > 0) {
        before = now;
        this.show(this.step + steps);
        if (this.step >= this.data.steps - 1) this.pause();
      }
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    this.playing = false;
    this.button.textContent = "Play";
  }
}
