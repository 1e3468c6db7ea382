"use strict";
// Drawing: elements are made one by one and text is set as text, so nothing in the data can become markup.

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = ["circle", "square", "up", "diamond", "down", "bar"];

function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, String(value));
  node.append(...children.filter((child) => child !== null));
  return node;
}

function colour(index) {
  return `var(--c${index % 6})`;
}

function painted(node, index, ...properties) {
  for (const property of properties) node.style[property] = colour(index);
  return node;
}

function scale(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(Number((k * step).toPrecision(10)));
  return found;
}

function plain(value) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size > 0 && size < 1e-4)) return value.toExponential(1).replace("-", "\u2212");
  return String(Number(value.toPrecision(6))).replace("-", "\u2212");
}

// The shape of a mark distinguishes runs without color.
function shape(kind, x, y, size) {
  const r = size;
  const path = {
    circle: `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
    square: `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
    up: `M${x} ${y - 1.25 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}Z`,
    down: `M${x} ${y + 1.25 * r}l${1.2 * r} ${-2.1 * r}h${-2.4 * r}Z`,
    diamond: `M${x} ${y - 1.4 * r}l${1.2 * r} ${1.4 * r}l${-1.2 * r} ${1.4 * r}l${-1.2 * r} ${-1.4 * r}Z`,
    bar: `M${x - 0.6 * r} ${y - 1.3 * r}h${1.2 * r}v${2.6 * r}h${-1.2 * r}Z`,
  };
  return svg("path", { d: path[kind] });
}

// Axes with their labels; returns the scales and where the plot is.
function frame(root, size, xs, ys, names, options = {}) {
  const shown = options.yText ?? plain;
  const yTicks = options.yTicks ?? ticks(ys[0], ys[1], size.height > 320 ? 6 : 4);
  const widest = Math.max(...yTicks.map((tick) => shown(tick).length));
  const box = { left: 38 + 8 * widest, right: size.width - 22, top: 12, bottom: size.height - 48 };
  const x = scale(xs[0], xs[1], box.left, box.right);
  const y = options.y ? options.y(box) : scale(ys[0], ys[1], box.bottom, box.top);
  for (const tick of yTicks) {
    root.append(
      svg("line", { class: "gridline", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }),
      svg("text", { x: box.left - 10, y: y(tick) + 4.5, "text-anchor": "end" }, shown(tick)),
    );
  }
  for (const tick of ticks(xs[0], xs[1], Math.max(2, Math.floor((box.right - box.left) / 75)))) {
    if (options.whole && !Number.isInteger(tick)) continue;
    root.append(
      svg("line", { class: "frame", x1: x(tick), x2: x(tick), y1: box.bottom, y2: box.bottom + 5 }),
      svg("text", { x: x(tick), y: box.bottom + 19, "text-anchor": "middle" }, plain(tick)),
    );
  }
  const middle = (box.top + box.bottom) / 2;
  root.append(
    svg("path", { class: "frame", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` }),
    svg("text", { x: (box.left + box.right) / 2, y: size.height - 8, "text-anchor": "middle", "data-axis": "x" }, names.x),
    svg("text", { transform: `translate(14 ${middle}) rotate(-90)`, "text-anchor": "middle", "data-axis": "y" }, names.y),
  );
  return { x, y, box };
}

// Draw now, and again whenever the width changes.
function redrawn(place, draw) {
  let width = 0;
  const again = () => {
    const now = Math.round(place.clientWidth);
    if (now > 0 && now !== width) {
      width = now;
      draw(now);
    }
  };
  new ResizeObserver(again).observe(place);
  again();
  return () => draw(width || 640);
}
