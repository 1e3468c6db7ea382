// The certificate's curve: bounds are lines, estimates are hollow marks, and a budget is read with mouse or slider.

class Curve {
  constructor(data, root) {
    this.data = data;
    this.plot = root.querySelector("[data-plot]");
    this.slider = root.querySelector("[data-slider]");
    this.budget = root.querySelector("[data-budget]");
    this.index = data.start;
    this.number();
    this.legend(root.querySelector("[data-readout]"));
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

  // One list is legend, switches and readout: what is drawn, how it looks, and its value at the chosen budget.
  legend(place) {
    this.values = new Map();
    const listed = [...this.data.series].sort((one, other) => Number(other.on) - Number(one.on)); // what is drawn first
    const rows = listed.map((series) => {
      const box = el("input", { type: "checkbox", "data-series": series.id, "data-role": series.role });
      box.checked = series.on;
      box.addEventListener("change", () => {
        series.on = box.checked;
        this.redraw();
        this.select(this.index);
      });
      const value = el("span", { class: "value" });
      this.values.set(series, value);
      return el("li", { "data-role": series.role }, el("label", {}, box, this.swatch(series), el("span", { class: "what" }, series.label)), value);
    });
    place.append(el("ul", {}, ...rows));
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
    node.setAttribute("class", `line ${series.role}`);
    return series.role === "baseline" ? node : painted(node, series.colour, "stroke");
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
    this.shade(root);
    for (const series of this.data.series.filter((one) => one.on)) this.series(root, series);
    this.cross = svg("g", { "aria-hidden": "true" });
    root.append(this.cross);
    // Over the line of the budget, which must not strike words out.
    this.tags(root);
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

  // Below the open-loop baseline a bound says nothing.
  shade(root) {
    const known = this.data.series.filter((one) => one.role === "baseline" && one.on).map((one) => one.y[0]);
    if (!known.length || !this.data.series.some((one) => one.role === "lower")) return;
    const { y, box } = this.at;
    const top = y(Math.min(...known));
    root.append(svg("rect", { class: "shade", x: box.left, y: top, width: box.right - box.left, height: Math.max(0, box.bottom - top) }));
  }

  // Lines are named where there is room: next to no other name, no mark, and not too near to another line.
  tags(root) {
    const lines = this.data.series.filter((one) => one.on && !this.marks(one));
    const drawn = this.data.series.filter((one) => one.on).flatMap((one) => this.dots(one).map(([x, y]) => [x, y, one]));
    const taken = [this.unsaid(root)].filter(Boolean);
    for (const series of lines.filter((one) => one.short)) {
      const text = series.short.length > 26 ? `${series.short.slice(0, 25)}\u2026` : series.short;
      const spot = this.spot(series, 7.2 * text.length, drawn, taken);
      if (!spot) continue;
      taken.push(spot);
      const tag = svg("text", { class: "tag", x: spot.left, y: spot.bottom - 4 }, text);
      tag.style.fill = series.role === "baseline" ? "var(--floor)" : colour(series.colour);
      root.append(tag);
    }
  }

  // The name of the shaded region, at its left end, where lines seldom are.
  unsaid(root) {
    const region = root.querySelector(".shade");
    const { box } = this.at;
    if (!region || Number(region.getAttribute("height")) < 24) return null;
    const bottom = Number(region.getAttribute("y")) + 20;
    root.append(svg("text", { class: "tag", x: box.left + 10, y: bottom - 4 }, "uninformative"));
    return { left: box.left, right: box.left + 110, top: bottom - 16, bottom };
  }

  // Points along a line, near enough to each other that no name slips between them.
  dots(series) {
    const { x, y } = this.at;
    const points = series.y.map((value, k) => (value === null ? null : [x(this.data.budgets[k]), y(value)])).filter(Boolean);
    if (this.marks(series)) return points.flatMap(([px, py]) => [[px, py - 6], [px, py], [px, py + 6]]);
    // Stairs go down at the budget before and on at their new height, as path() draws them.
    const turns = series.fine ? points : points.flatMap(([px, py], k) => (k ? [[points[k - 1][0], py], [px, py]] : [[px, py]]));
    return turns.slice(1).flatMap(([px, py], k) => {
      const [fx, fy] = turns[k];
      const parts = Math.max(1, Math.ceil(Math.hypot(px - fx, py - fy) / 5));
      return Array.from({ length: parts }, (_, j) => [fx + ((px - fx) * (j + 1)) / parts, fy + ((py - fy) * (j + 1)) / parts]);
    });
  }

  spot(series, width, drawn, taken) {
    const { box } = this.at;
    const line = this.dots(series);
    for (let part = 0.98; part > 0.02; part -= 0.04) {
      const [px, py] = line[Math.floor(part * (line.length - 1))] ?? [NaN, NaN];
      for (const [left, bottom] of [[px - width, py - 4], [px + 7, py - 2], [px - width / 2, py - 4], [px - width - 7, py + 17], [px - width / 2, py + 20]]) {
        const spot = { left, right: left + width, top: bottom - 16, bottom };
        const inside = spot.left > box.left + 4 && spot.right < box.right && spot.top > box.top && spot.bottom < box.bottom - 2;
        const free = taken.every((one) => one.right < spot.left || spot.right < one.left || one.bottom < spot.top || spot.bottom < one.top);
        if (inside && free && !drawn.some(([x, y, of]) => {
          const room = of === series ? 0 : 4;
          return x > spot.left - 3 && x < spot.right + 3 && y > spot.top - room && y < spot.bottom + room;
        })) return spot;
      }
    }
    return null;
  }

  // Between the budgets of a file without a band, the next larger one counts: stairs.
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
    for (const [series, value] of this.values) value.replaceChildren(...this.value(series, index));
    this.pointer();
  }

  value(series, index) {
    if (!series.on) return [];
    if (series.text[index] === null) return [el("span", { class: "off" }, "not at this budget")];
    const shown = [`${series.prefix} `, el("b", { "data-value": series.id }, series.text[index])];
    return series.suffix ? [...shown, " ", el("span", {}, series.suffix)] : shown;
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
