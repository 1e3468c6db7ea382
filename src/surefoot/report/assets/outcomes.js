// Histograms of returns, and the attacker's budget usage over the steps of an episode.

function chooser(name, items, chosen, change) {
  const select = el("select", {}, ...items.map((item, k) => el("option", { value: k }, item)));
  select.value = String(chosen);
  select.addEventListener("change", () => change(Number(select.value)));
  return el("label", {}, name, select);
}

class Histogram {
  constructor(data, root) {
    this.data = data;
    this.first = 0;
    this.second = data.items.length > 1 ? data.items.length : 0;
    this.stretched = Math.max(...data.items[0].counts) > 0.95 * data.items[0].total; // else the failures are invisible
    this.place = el("div", { class: "plot" });
    this.said = el("p", { class: "note", "aria-live": "polite" });
    root.append(this.controls(), this.place, this.said);
    this.redraw = redrawn(this.place, (width) => this.draw(width));
  }

  controls() {
    const box = el("input", { type: "checkbox", "data-stretch": "" });
    box.checked = this.stretched;
    box.addEventListener("change", () => {
      this.stretched = box.checked;
      this.redraw();
    });
    const labels = this.data.items.map((item) => item.label);
    const parts = [el("label", {}, box, "stretch the small bars (logarithmic)")];
    if (labels.length > 1) {
      parts.unshift(
        chooser("bars", labels, 0, (k) => { this.first = k; this.redraw(); }),
        chooser("outline", ["nothing", ...labels], this.second, (k) => { this.second = k; this.redraw(); }),
      );
    }
    return el("div", { class: "controls" }, ...parts);
  }

  draw(width) {
    const { edges, items } = this.data;
    const bars = items[this.first];
    const outline = this.second > 0 ? items[this.second - 1] : null;
    const shares = [bars, outline].filter(Boolean).map((item) => item.counts.map((count) => count / item.total));
    const top = Math.max(...shares.flat());
    const least = Math.min(...shares.flat().filter((share) => share > 0));
    const size = { width, height: Math.round(Math.min(340, Math.max(250, width * 0.4))) };
    const words = (how, item) => `${how}: ${item.label}, mean ${item.meanText} over ${item.total.toLocaleString("en")} episodes`;
    const said = outline ? [words("Bars", bars), words("outline", outline)] : [words("Bars", bars)];
    this.said.textContent = `${said.join("; ")}. Dashed: ${outline ? "the means, estimates" : "the mean, an estimate"}.`;
    const root = svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, role: "img", "aria-label": `Histogram of returns. ${said.join("; ")}. The counts are in the table below.` });
    const at = frame(root, size, [edges[0], edges[edges.length - 1]], [0, 1.05 * top], { x: "return of an episode", y: "share of episodes" }, { ...this.heights(top, least), whole: this.data.whole });
    shares[0].forEach((share, k) => {
      if (share > 0) root.append(svg("rect", { class: "bar", x: at.x(edges[k]) + 0.5, y: at.y(share), width: Math.max(1, at.x(edges[k + 1]) - at.x(edges[k]) - 1), height: Math.max(0, at.box.bottom - at.y(share)) }));
    });
    if (outline) {
      let d = `M${at.x(edges[0])} ${at.box.bottom}`;
      shares[1].forEach((share, k) => { d += `V${share > 0 ? at.y(share) : at.box.bottom}H${at.x(edges[k + 1])}`; });
      root.append(svg("path", { class: "outline", d: `${d}V${at.box.bottom}` }));
    }
    for (const item of [bars, outline].filter(Boolean)) root.append(svg("line", { class: "meanline", x1: at.x(item.mean), x2: at.x(item.mean), y1: at.box.top, y2: at.box.bottom }));
    this.place.replaceChildren(root);
  }

  heights(top, least) {
    const yText = (share) => `${plain(100 * share)}%`;
    if (!this.stretched) return { yText, yTicks: ticks(0, top, 4) };
    const low = Math.floor(Math.log10(least) - 0.01);
    const high = Math.max(Math.log10(top), low + 1) + 0.1;
    const yTicks = [];
    for (let power = low; power <= Math.min(0, high); power += 1) yTicks.push(10 ** power);
    const y = (box) => {
      const linear = scale(low, high, box.bottom, box.top);
      return (share) => linear(share > 0 ? Math.log10(share) : low);
    };
    return { yText, yTicks, y };
  }
}

class Spending {
  constructor(items, root) {
    this.items = items;
    this.chosen = items.length - 1;
    this.place = el("div", { class: "plot" });
    this.said = el("p", { class: "note", "aria-live": "polite" });
    const labels = items.map((item) => item.label);
    const pick = chooser("attack", labels, this.chosen, (k) => { this.chosen = k; this.redraw(); });
    root.append(el("div", { class: "controls" }, pick), this.place, this.said);
    this.redraw = redrawn(this.place, (width) => this.draw(width));
  }

  draw(width) {
    const item = this.items[this.chosen];
    const last = this.lastSpent(item);
    const top = Math.max(...item.values) || 1;
    const size = { width, height: Math.round(Math.min(300, Math.max(230, width * 0.36))) };
    const root = svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, role: "img", "aria-label": `Budget usage over time. ${item.label}. ${item.says}` });
    const each = item.together > 1 ? ` (${item.together} steps a bar)` : "";
    const at = frame(root, size, [0, last * item.together], [0, 1.05 * top], { x: `step of the episode${each}`, y: "mean squared perturbation" });
    item.values.slice(0, last).forEach((value, k) => {
      const [from, to] = [at.x(k * item.together), at.x((k + 1) * item.together)];
      root.append(svg("rect", { class: "bar", x: from, y: at.y(value), width: Math.max(0.7, to - from - (to - from > 4 ? 1 : 0)), height: at.box.bottom - at.y(value) }));
    });
    this.place.replaceChildren(root);
    this.said.textContent = `${item.label}. ${item.says}`;
  }

  // The axis ends where less than a thousandth of the total usage remains, with a little room.
  lastSpent(item) {
    const total = item.values.reduce((sum, value) => sum + value, 0);
    let [last, sum] = [0, 0];
    while (last < item.values.length && sum < 0.999 * total) {
      sum += item.values[last];
      last += 1;
    }
    return Math.min(item.values.length, Math.max(10, Math.ceil(last * 1.1)));
  }
}
