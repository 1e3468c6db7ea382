"use strict";
// Tables that are marked as sortable sort by a click on a heading; what scrolls sideways can be scrolled by keyboard.

const number = (text) => {
  const found = text.replace(/,/g, "").match(/-?\d+(\.\d+)?/);
  return found ? Number(found[0]) : NaN;
};

const order = (column, down) => (one, other) => {
  const texts = [one, other].map((row) => row.cells[column].textContent.trim());
  const values = texts.map(number);
  const numeric = values.some((value) => !Number.isNaN(value));
  const signed = numeric ? values.map((value) => (Number.isNaN(value) ? -Infinity : value)) : texts;
  const before = numeric ? signed[0] - signed[1] : texts[0].localeCompare(texts[1]);
  return (down ? -1 : 1) * (Number.isNaN(before) ? 0 : before);
};

const sortable = (table) => {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order(column, down)));
    });
  });
};

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".sortable table").forEach(sortable);
  for (const wide of document.querySelectorAll("pre > code, .md-typeset__scrollwrap, .formula")) {
    if (wide.scrollWidth > wide.clientWidth) wide.tabIndex = 0;
  }
});
