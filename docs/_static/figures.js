// Figures are drawn while the page is read, before the sidebars take their width: fit them once all is laid out. Each has
// a name for people who cannot see it: its own title, or that of the section.
window.addEventListener("load", () => {
  document.querySelectorAll(".plotly-graph-div").forEach((figure) => {
    const title = figure.querySelector(".gtitle") ?? figure.closest("section")?.querySelector("h1, h2, h3");
    figure.setAttribute("role", "img");
    figure.setAttribute("aria-label", `Figure: ${(title?.textContent ?? document.title).replace("#", "").trim()}`);
    window.Plotly?.Plots.resize(figure);
  });
});
