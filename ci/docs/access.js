// SPDX-License-Identifier: MIT
// What axe-core reports on pages of the theme: parts without a name, empty heads of columns, and code that no key scrolls.
function name() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((each, n) => each.setAttribute("aria-label", `Code ${n + 1}`));
  document.querySelectorAll("pre > code, .md-typeset__scrollwrap").forEach((each) => { each.tabIndex = 0; });
  document.querySelectorAll("th").forEach((each) => {
    if (!each.textContent.trim()) each.replaceWith(document.createElement("td"));
  });
}
addEventListener("load", () => {
  name();
  // The theme adds the buttons of code later.
  new MutationObserver(name).observe(document.body, { childList: true, subtree: true });
});
