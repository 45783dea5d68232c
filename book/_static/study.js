"use strict";
// Says where a table or a figure is wider than its box: many systems hide the scroll bar.
function markScrolling() {
  for (const box of document.querySelectorAll(".study-scroll, .pst-scrollable-table-container")) {
    const marked = box.closest("figure.study-table, figure.study-figure") || box;
    marked.classList.toggle("scrolls", box.scrollWidth > box.clientWidth + 1);
  }
}
for (const moment of ["DOMContentLoaded", "load", "resize"]) {
  window.addEventListener(moment, markScrolling);
}
