// Tables with the class "sortable": a click on a column's head, or Enter or Space there, sorts by it; again reverses.
// Numbers are compared as numbers. Empty places stay last.
document.addEventListener("DOMContentLoaded", () => {
  const compare = (a, b) => {
    const [p, q] = [Number(a), Number(b)];
    return Number.isNaN(p) || Number.isNaN(q) ? a.localeCompare(b, "en", { numeric: true }) : p - q;
  };
  for (const table of document.querySelectorAll("table.sortable, .sortable table")) {
    table.classList.add("sortable");
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.tabIndex = 0;
      head.title = "Sort by this column";
      head.setAttribute("aria-sort", "none");
      const sort = () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.setAttribute("aria-sort", "none"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const key = (row) => row.cells[column].textContent.trim();
        const filled = [...body.rows].filter(key).sort((a, b) => (up ? 1 : -1) * compare(key(a), key(b)));
        body.append(...filled, ...[...body.rows].filter((row) => !key(row)));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort();
      });
    });
  }
});
