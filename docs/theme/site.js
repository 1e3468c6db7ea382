"use strict";
// A search box over an index that is loaded when it is first needed, and the list of pages, closed on a small screen.

let index = null;
let waiting = null;

// The index is a script, which a page opened from a disk may load too; it calls this.
function searchable(sections) {
  index = sections.map((section) => ({ ...section, low: `${section.title} ${section.text}`.toLowerCase() }));
  if (waiting) waiting();
}

const found = (query) => {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const rank = (section) => words.reduce((sum, word) => sum
    + (section.title.toLowerCase().includes(word) ? 20 : 0) + (section.page.toLowerCase().includes(word) ? 5 : 0)
    + Math.min(5, section.low.split(word).length - 1), 0);
  return index.filter((section) => words.every((word) => section.low.includes(word)))
    .map((section) => [rank(section), section]).sort((a, b) => b[0] - a[0]).slice(0, 12)
    .map(([, section]) => ({ ...section, part: excerpt(section.text, words[0]) }));
};

const excerpt = (text, word) => {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40);
  return (at ? "… " : "") + text.slice(at, at + 130) + (text.length > at + 130 ? " …" : "");
};

const element = (name, text, parent) => {
  const made = document.createElement(name);
  made.textContent = text;
  parent.append(made);
  return made;
};

const show = (box, list) => {
  const hits = found(box.value);
  list.replaceChildren();
  list.hidden = !box.value.trim();
  if (!hits.length) element("p", "No matches.", list);
  for (const hit of hits) {
    const link = element("a", "", list);
    link.href = `${box.dataset.base}/${hit.url}`;
    element("b", hit.title === hit.page ? hit.page : `${hit.page} › ${hit.title}`, link);
    element("span", hit.part, link);
  }
};

const keys = (event, box, list) => {
  if (event.key === "Escape") { list.hidden = true; box.focus(); return; }
  const links = [box, ...list.querySelectorAll("a")];
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const at = links.indexOf(document.activeElement);
  if (step && at >= 0 && !list.hidden) {
    event.preventDefault();
    links[(at + step + links.length) % links.length].focus();
  } else if (event.key === "Enter" && at === 0 && links.length > 1) links[1].click();
};

const search = (box, list) => {
  const update = () => { if (index) show(box, list); };
  const load = () => {
    if (waiting) return;
    waiting = update;
    const script = document.createElement("script");
    script.src = `${box.dataset.base}/search-index.js`;
    document.head.append(script);
  };
  box.addEventListener("focus", () => { load(); update(); });
  box.addEventListener("input", () => { load(); update(); });
  box.parentElement.addEventListener("keydown", (event) => keys(event, box, list));
  document.addEventListener("click", (event) => { if (!box.parentElement.contains(event.target)) list.hidden = true; });
  list.addEventListener("click", () => { list.hidden = true; });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) { event.preventDefault(); box.focus(); }
  });
};

document.addEventListener("DOMContentLoaded", () => {
  themes(document.getElementById("theme"));
  if (matchMedia("(max-width: 48rem)").matches) document.getElementById("pages").open = false;
  search(document.getElementById("search"), document.getElementById("hits"));
  // What scrolls sideways can be scrolled with the keyboard.
  for (const wide of document.querySelectorAll("pre, table, .formula")) if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
});
