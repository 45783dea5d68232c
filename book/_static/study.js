"use strict";
// Says where a table or a figure is wider than its box: many systems hide the scroll bar.
function markScrolling() {
  for (const box of document.querySelectorAll(".study-scroll, .pst-scrollable-table-container")) {
    const marked = box.closest("figure.study-table, figure.study-figure") || box;
    marked.classList.toggle("scrolls", box.scrollWidth > box.clientWidth + 1);
  }
}
// Where a figure is drawn much below its own size, a button draws it at that size, and back.
function offerEnlarging() {
  for (const figure of document.querySelectorAll("figure.study-figure")) {
    const image = figure.querySelector("img"), enlarged = figure.classList.contains("enlarged");
    let button = figure.querySelector(".study-enlarge");
    if (!button) {
      button = document.createElement("button");
      button.type = "button";
      button.className = "study-enlarge";
      button.addEventListener("click", () => {
        figure.classList.toggle("enlarged");
        offerEnlarging();
        markScrolling();
      });
      figure.prepend(button);
    }
    button.textContent = enlarged ? "Fit the figure to the page" : "Enlarge the figure";
    button.hidden = !enlarged && image.clientWidth >= 0.8 * image.naturalWidth;
  }
}
for (const moment of ["DOMContentLoaded", "load", "resize"]) {
  window.addEventListener(moment, offerEnlarging);
  window.addEventListener(moment, markScrolling);
}
