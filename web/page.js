// A search field above each long table, and a picture that opens alone: what the theme has not.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const rows = [...table.querySelectorAll("tbody tr")];
    if (rows.length <= 12) continue;
    const field = document.createElement("input");
    field.type = "search";
    field.className = "rows";
    field.placeholder = field.ariaLabel = `search these ${rows.length} rows`;
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    });
    (table.closest(".table-wrapper") ?? table).before(field);
  }
  for (const picture of document.querySelectorAll("article img:not(a img)")) {
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }
});
