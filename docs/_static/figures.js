// Figures are drawn while the page is read, before the sidebars take their width: fit them once all is laid out.
window.addEventListener("load", () => {
  document.querySelectorAll(".plotly-graph-div").forEach((figure) => window.Plotly?.Plots.resize(figure));
});
