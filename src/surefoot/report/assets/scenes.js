// One panel of a replay, drawn from observations: known games as pictures, other small observations as traces.

function sceneOf(replay, panel, ranges) {
  if (panel.sheet) return pictureScene(panel);
  if (replay.environment.startsWith("CartPole") && replay.coordinates === 4) return cartScene(panel);
  if (replay.environment.startsWith("MountainCar") && replay.coordinates === 2) return hillScene(panel);
  return traceScene(panel, ranges, replay.names ?? []);
}

function degrees(angle) {
  return plain(Number(((angle * 180) / Math.PI).toFixed(1)));
}

// From where the noise alone would show something to where the attacker put it.
function arrowTo([fx, fy], [tx, ty]) {
  const length = Math.hypot(tx - fx, ty - fy);
  if (length < 1) return "";
  const [ux, uy] = [(tx - fx) / length, (ty - fy) / length];
  const head = Math.min(7, length);
  const wing = (side) => `${tx - head * (ux + side * 0.6 * uy)} ${ty - head * (uy - side * 0.6 * ux)}`;
  return `M${fx} ${fy}L${tx} ${ty}M${wing(1)}L${tx} ${ty}L${wing(-1)}`;
}

function cartScene(panel) {
  const root = svg("svg", { viewBox: "0 0 300 170", role: "img", "aria-label": `${panel.title}: cart and pole` });
  const x = scale(-2.6, 2.6, 0, 300);
  root.append(svg("path", { class: "ground", d: "M0 140H300" }), svg("path", { class: "ground", d: `M${x(-2.4)} 132v16M${x(2.4)} 132v16` }));
  const truth = panel.truth ? svg("path", { class: "truth" }) : null;
  const cart = svg("path", { class: "body" });
  const pole = svg("path", { class: "stick" });
  const push = svg("path", { class: "ground" });
  const arrow = svg("path", { class: "push" });
  root.append(cart, pole, push, arrow);
  if (truth) root.append(truth);
  const tip = (state) => [x(state[0]) + 92 * Math.sin(state[2]), 118 - 92 * Math.cos(state[2])];
  const outline = (state) => {
    const at = x(state[0]);
    return `M${at - 22} 118h44v22h-44ZM${at} 118L${tip(state).join(" ")}`;
  };
  return {
    node: root,
    show(step) {
      const state = panel.seen[step];
      const at = x(state[0]);
      cart.setAttribute("d", `M${at - 22} 118h44v22h-44Z`);
      pole.setAttribute("d", `M${at} 118L${tip(state).join(" ")}`);
      const added = panel.perturbation?.[step];
      arrow.setAttribute("d", added ? arrowTo(tip(state.map((value, k) => value - added[k])), tip(state)) : "");
      if (truth) truth.setAttribute("d", outline(panel.truth[step]));
      const action = panel.actions[step + 1];
      const way = action === 1 ? 1 : action === 0 ? -1 : 0;
      push.setAttribute("d", way ? `M150 158h${22 * way}m${-6 * way} -5l${6 * way} 5l${-6 * way} 5` : "");
      return `position ${plain(Number(state[0].toFixed(2)))}, angle ${degrees(state[2])}\u00b0`;
    },
  };
}

function hillScene(panel) {
  const root = svg("svg", { viewBox: "0 0 300 170", role: "img", "aria-label": `${panel.title}: car between two hills` });
  const x = scale(-1.3, 0.7, 0, 300);
  const height = (place) => 150 - 120 * (0.5 + 0.45 * Math.sin(3 * place));
  let d = "";
  for (let place = -1.3; place <= 0.701; place += 0.02) d += `${d ? "L" : "M"}${x(place).toFixed(1)} ${height(place).toFixed(1)}`;
  root.append(svg("path", { class: "ground", d }), svg("path", { class: "ground", d: `M${x(0.5)} ${height(0.5)}v-26l14 6l-14 6` }));
  const truth = panel.truth ? svg("circle", { class: "truth", r: 9 }) : null;
  const car = svg("circle", { class: "body", r: 8 });
  const arrow = svg("path", { class: "push" });
  root.append(car, arrow);
  if (truth) root.append(truth);
  const put = (node, place) => {
    node.setAttribute("cx", x(place));
    node.setAttribute("cy", height(place) - 8);
  };
  return {
    node: root,
    show(step) {
      put(car, panel.seen[step][0]);
      const added = panel.perturbation?.[step];
      const spot = (place) => [x(place), height(place) - 8];
      arrow.setAttribute("d", added ? arrowTo(spot(panel.seen[step][0] - added[0]), spot(panel.seen[step][0])) : "");
      if (truth) put(truth, panel.truth[step][0]);
      return `position ${plain(Number(panel.seen[step][0].toFixed(3)))}, speed ${plain(Number(panel.seen[step][1].toFixed(4)))}`;
    },
  };
}

const LONGEST_NAME = 14;

function traceScene(panel, ranges, names) {
  const rows = panel.seen[0].length;
  const short = (name) => (name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}\u2026` : name);
  const labels = names.length === rows ? names.map(short) : Array.from({ length: rows }, (_, row) => `o${row + 1}`);
  const left = Math.max(30, 12 + 7 * Math.max(...labels.map((label) => label.length)));
  const each = rows > 6 ? 30 : 44;
  const root = svg("svg", { viewBox: `0 0 300 ${rows * each + 6}`, role: "img", "aria-label": `${panel.title}: the observation's ${rows} numbers over time` });
  const x = scale(0, Math.max(1, panel.seen.length - 1), left, 292);
  const dots = [];
  for (let row = 0; row < rows; row += 1) {
    const y = scale(ranges[row][0], ranges[row][1], (row + 1) * each - 5, row * each + 7);
    const line = (states) => states.map((state, step) => `${step ? "L" : "M"}${x(step).toFixed(1)} ${y(state[row]).toFixed(1)}`).join("");
    root.append(svg("text", { x: 2, y: (row + 0.5) * each + 6 }, labels[row]), svg("path", { class: "trace", d: line(panel.seen) }));
    if (panel.truth) root.append(svg("path", { class: "truth", d: line(panel.truth) }));
    const dot = svg("circle", { class: "now", r: 4 });
    root.append(dot);
    dots.push([dot, y]);
  }
  return {
    node: root,
    show(step) {
      dots.forEach(([dot, y], row) => {
        dot.setAttribute("cx", x(step));
        dot.setAttribute("cy", y(panel.seen[step][row]));
      });
      return panel.seen[step].slice(0, 4).map((value) => plain(Number(value.toPrecision(3)))).join(", ") + (rows > 4 ? ", \u2026" : "");
    },
  };
}

function pictureScene(panel) {
  const { source, width, height, columns } = panel.sheet;
  const canvas = el("canvas", { width, height, role: "img", "aria-label": `${panel.title}: the picture that the agent observes` });
  const sheet = new Image();
  let wanted = 0;
  const draw = () => canvas.getContext("2d").drawImage(sheet, (wanted % columns) * width, Math.floor(wanted / columns) * height, width, height, 0, 0, width, height);
  sheet.addEventListener("load", draw);
  sheet.src = source;
  return {
    node: canvas,
    show(step) {
      wanted = step;
      if (sheet.complete) draw();
      return "";
    },
  };
}
