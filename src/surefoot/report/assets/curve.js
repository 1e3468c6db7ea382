// The certificate's curve: bounds are lines, estimates are hollow marks, and a budget is read with mouse or slider.

class Curve {
  constructor(data, root) {
    this.data = data;
    this.plot = root.querySelector("[data-plot]");
    this.slider = root.querySelector("[data-slider]");
    this.budget = root.querySelector("[data-budget]");
    this.readout = root.querySelector("[data-readout]");
    this.index = data.start;
    this.number();
    this.switches(root.querySelector("[data-switches]"));
    this.slider.max = String(data.budgets.length - 1);
    this.slider.addEventListener("input", () => this.select(Number(this.slider.value)));
    this.redraw = redrawn(this.plot, (width) => this.draw(width));
    this.select(this.index);
  }

  // Methods and attacks get a line style or a shape of their own, in the order in which they come.
  number() {
    const counts = {};
    for (const series of this.data.series) {
      counts[series.role] = (counts[series.role] ?? -1) + 1;
      series.order = counts[series.role];
    }
  }

  switches(place) {
    for (const series of this.data.series) {
      const box = el("input", { type: "checkbox", "data-series": series.id, "data-role": series.role });
      box.checked = series.on;
      box.addEventListener("change", () => {
        series.on = box.checked;
        this.redraw();
        this.select(this.index);
      });
      place.append(el("label", {}, box, this.swatch(series), el("span", {}, series.label)));
    }
  }

  swatch(series) {
    const root = svg("svg", { class: "swatch", viewBox: "0 0 40 16", "aria-hidden": "true" });
    if (this.marks(series)) root.append(...this.mark(series, 20, 8, 7.4, 4));
    else {
      root.append(this.styled(svg("path", { d: "M1 8H39" }), series));
      if (series.role === "lower") root.append(painted(shape(SHAPES[series.colour % 6], 20, 8, 4), series.colour, "fill"));
    }
    return root;
  }

  marks(series) {
    return series.role === "attack" || series.role === "estimate";
  }

  styled(node, series) {
    node.setAttribute("class", `line ${series.role} m${series.order % 5}`);
    return series.role === "blind" ? node : painted(node, series.colour, "stroke");
  }

  mark(series, x, y, whisker, size = 5) {
    const kind = series.role === "estimate" ? "diamond" : SHAPES[(series.order + 1) % 6];
    const form = painted(shape(kind, x, y, size), series.colour, "stroke");
    form.setAttribute("class", "hollow");
    const reach = Math.max(0, whisker);
    const line = svg("path", { class: "whisker", d: `M${x} ${y - reach}V${y + reach}M${x - 4} ${y - reach}h8M${x - 4} ${y + reach}h8`, fill: "none" });
    return [painted(line, series.colour, "stroke"), form];
  }

  draw(width) {
    const size = { width, height: Math.round(Math.min(440, Math.max(280, width * 0.52))) };
    const [low, high] = this.data.range;
    const pad = 0.03 * (high - low);
    const budgets = this.data.budgets;
    const last = budgets[budgets.length - 1] || 1;
    const root = svg("svg", {
      viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, role: "img",
      "aria-label": `Mean return over the attack budget for ${this.data.title}. The numbers stand in the table below.`,
    });
    const name = width < 560 ? "attack budget" : `attack budget: ${this.data.budget}`;
    this.at = frame(root, size, [0, last], [low - pad, high + pad], { x: name, y: "mean return" }, { yTicks: ticks(low, high, size.height > 320 ? 6 : 4) });
    for (const series of this.data.series.filter((one) => one.on)) this.series(root, series);
    this.cross = svg("g", { "aria-hidden": "true" });
    root.append(this.cross);
    root.addEventListener("pointermove", (event) => this.hover(event, root));
    root.addEventListener("pointerdown", (event) => this.hover(event, root));
    this.plot.replaceChildren(root);
    this.pointer();
  }

  series(root, series) {
    const { x, y } = this.at;
    const budgets = this.data.budgets;
    const group = svg("g", { "data-line": series.id });
    if (this.marks(series)) {
      series.y.forEach((value, k) => {
        if (value !== null) group.append(...this.mark(series, x(budgets[k]), y(value), Math.abs(y(value) - y(value + (series.error[k] ?? 0)))));
      });
    } else {
      group.append(this.styled(svg("path", { d: this.path(series) }), series));
      if (series.role === "lower") this.points(group, series);
    }
    root.append(group);
  }

  // Between the budgets of a file that says no more, the next larger one counts: stairs.
  path(series) {
    const { x, y } = this.at;
    let d = "";
    let before = null;
    series.y.forEach((value, k) => {
      if (value === null) return;
      const [px, py] = [x(this.data.budgets[k]).toFixed(1), y(value).toFixed(1)];
      if (before === null) d += `M${px} ${py}`;
      else d += series.fine ? `L${px} ${py}` : `V${py}H${px}`;
      before = value;
    });
    return d;
  }

  points(group, series) {
    const { x, y } = this.at;
    let last = -99;
    for (const k of series.marks) {
      const px = x(this.data.budgets[k]);
      if (series.y[k] === null || px - last < 9) continue;
      last = px;
      group.append(painted(shape(SHAPES[series.colour % 6], px, y(series.y[k]), 3.6), series.colour, "fill"));
    }
  }

  hover(event, root) {
    const bounds = root.getBoundingClientRect();
    const at = ((event.clientX - bounds.left) / bounds.width) * root.viewBox.baseVal.width;
    let best = 0;
    this.data.budgets.forEach((budget, k) => {
      if (Math.abs(this.at.x(budget) - at) < Math.abs(this.at.x(this.data.budgets[best]) - at)) best = k;
    });
    if (best !== this.index) this.select(best);
  }

  select(index) {
    this.index = index;
    this.slider.value = String(index);
    this.budget.textContent = this.data.texts[index];
    const shown = this.data.series.filter((one) => one.on && one.text[index] !== null);
    const lines = shown.map((one) => `${one.label}: ${one.prefix} ${one.text[index]}`);
    this.slider.setAttribute("aria-valuetext", `budget ${this.data.texts[index]}. ${lines.join(". ")}`);
    const items = shown.map((one) => this.item(one, index));
    const empty = el("p", { class: "note" }, "Nothing is shown for this budget; switch something on below.");
    this.readout.replaceChildren(items.length ? el("ul", {}, ...items) : empty);
    this.pointer();
  }

  item(series, index) {
    const value = el("span", { class: "value" }, `${series.prefix} `, el("b", { "data-value": series.id }, series.text[index]));
    if (series.suffix) value.append(" ", el("span", {}, series.suffix));
    return el("li", { "data-role": series.role }, this.swatch(series), el("span", { class: "what" }, series.label), value);
  }

  pointer() {
    if (!this.cross) return;
    const { x, y, box } = this.at;
    const px = x(this.data.budgets[this.index]);
    this.cross.replaceChildren(svg("line", { class: "cross", x1: px, x2: px, y1: box.top, y2: box.bottom }));
    for (const series of this.data.series) {
      const value = series.y[this.index];
      if (!series.on || value === null || series.role !== "lower") continue;
      const dot = painted(shape("circle", px, y(value), 5.5), series.colour, "fill");
      dot.setAttribute("class", "dot");
      this.cross.append(dot);
    }
  }
}
