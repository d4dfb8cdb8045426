"use strict";
const table = document.getElementById("table"), body = table.tBodies[0], rows = [...body.rows];
const find = document.querySelector(".find"), field = find.querySelector("input"), found = find.querySelector("span");
const words = rows.map((row) => row.textContent.toLowerCase());
find.hidden = false;
field.addEventListener("input", () => {
  const asked = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  rows.forEach((row, i) => {
    row.hidden = !asked.every((word) => words[i].includes(word));
    shown += !row.hidden;
  });
  found.textContent = asked.length ? `${shown} of ${rows.length}` : "";
});
const names = new Intl.Collator(undefined, { numeric: true });
[...table.tHead.rows[0].cells].forEach((head, column) => {
  const button = document.createElement("button");
  button.textContent = head.textContent;
  head.replaceChildren(button);
  button.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    [...head.parentNode.cells].forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const text = (row) => row.cells[column].textContent.trim();
    const sorted = [...rows].sort((a, b) => {
      if (!text(a) || !text(b)) return !text(a) - !text(b); // what is not known stands last, either way
      return (down ? -1 : 1) * names.compare(text(a), text(b));
    });
    body.append(...sorted);
  });
});
