// Tables with the class "sortable": a click on a column's head sorts by it, a second click reverses.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.sortable, .sortable table")) {
    table.classList.add("sortable");
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      head.tabIndex = 0;
      const sort = () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const body = table.tBodies[0];
        const key = (row) => row.cells[column].textContent.trim();
        const rows = [...body.rows].sort((a, b) => key(a).localeCompare(key(b), "en", { numeric: true }));
        body.append(...(up ? rows : rows.reverse()));
      };
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
    });
  }
});
