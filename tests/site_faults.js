// What is wrong with a page as it is shown now: one line per fault. Run by tests/test_site.py and tests/report/test_browser.py.
const still = document.createElement("style");
still.textContent = "* { transition: none !important; animation: none !important }";
document.head.append(still);
const faults = [];
const shown = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
const name = (e) => `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 40)}`;
if (document.documentElement.scrollWidth > innerWidth) faults.push("wider than the screen");
for (const e of document.querySelectorAll("article :is(p, li, td, th, h1, h2, h3, pre, code, figure)")) {
  const style = getComputedStyle(e);
  if (style.overflowX === "hidden" && e.scrollWidth > e.clientWidth + 1 && shown(e)) faults.push(`cut: ${name(e)}`);
  const box = e.getBoundingClientRect();
  const scroller = e.closest(".md-typeset__scrollwrap, pre, .formula");
  if (!scroller && box.width && box.right > innerWidth + 1) faults.push(`beyond the edge: ${name(e)}`);
}
for (const e of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .formula")) {
  if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX !== "auto") faults.push(`no scrolling: ${name(e)}`);
}
for (const e of document.querySelectorAll("article img")) {
  if (!e.alt.trim()) faults.push(`no alternative text: ${e.src}`);
  if (!e.complete || !e.naturalWidth) faults.push(`not shown: ${e.src}`);
}

// Contrast as WCAG AA asks for it: 4.5, large text 3. It does not depend on the width.
if (!arguments[0]) return faults;
const rgb = (text) => { const n = text.match(/[\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
const linear = (v) => (v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
const light = (c) => [.2126, .7152, .0722].reduce((sum, weight, i) => sum + weight * linear(c[i] / 255), 0);
const grounds = new Map();
const ground = (e) => {
  if (!e) return [255, 255, 255, 1];
  if (!grounds.has(e)) grounds.set(e, over(rgb(getComputedStyle(e).backgroundColor), ground(e.parentElement)));
  return grounds.get(e);
};
const seen = new Set();
for (const e of document.querySelectorAll("body :not(math, math *, script, style, noscript, .headerlink)")) {
  if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  const style = getComputedStyle(e);
  const back = ground(e);
  const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
  const key = `${style.color} ${back} ${large}`;
  if (seen.has(key) || !shown(e) || e.closest(".md-search__output, .md-skip")) continue;
  seen.add(key);
  const [one, other] = [light(over(rgb(style.color), back)), light(back)];
  const contrast = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
  if (contrast < (large ? 3 : 4.5)) faults.push(`contrast ${contrast.toFixed(2)}: ${name(e)}`);
}
return faults;
