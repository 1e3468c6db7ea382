"use strict";
// On a small screen the list of pages begins closed.
document.addEventListener("DOMContentLoaded", () => {
  themes(document.getElementById("theme"));
  if (matchMedia("(max-width: 48rem)").matches) document.getElementById("pages").open = false;
});
