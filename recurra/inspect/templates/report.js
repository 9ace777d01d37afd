"use strict";
const specs = JSON.parse(document.getElementById("figures").textContent);
const plots = [...document.querySelectorAll(".plot")];
const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
const narrow = (element) => element.clientWidth < 500;
const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();

// plotly is loaded when the first figure comes into view, so the page opens at once. The policy allows it by its hash.
function load() {
  if (window.Plotly) return;
  const script = document.createElement("script");
  script.textContent = document.getElementById("plotly").textContent;
  document.head.append(script);
}

function draw(element) {
  if (element.dataset.state) return;
  element.dataset.state = "drawing";
  load();
  const spec = specs[Number(element.dataset.figure)];
  for (const trace of spec.data) {  // equal hover texts of all rows of a heat map are stored once
    if (trace.type === "heatmap" && trace.customdata?.length === 1) trace.customdata = trace.z.map(() => trace.customdata[0]);
  }
  const layout = { ...spec.layout, font: { ...spec.layout.font, color: ink() } };
  if (narrow(element)) {
    const named = spec.data.filter((trace) => trace.name && trace.showlegend !== false).length;
    layout.margin = { ...layout.margin, l: 48, r: 8 };
    layout.legend = { ...layout.legend, font: { size: 10 } };
    layout.height += named > 2 ? 14 * named : 0;
    element.style.minHeight = `${layout.height}px`;
  }
  Plotly.newPlot(element, spec.data, layout, { ...config, displayModeBar: narrow(element) ? false : "hover" }).then(() => { element.dataset.state = "drawn"; });
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) setTimeout(draw, 0, entry.target);
}, { rootMargin: "400px" });
addEventListener("load", () => setTimeout(() => { for (const plot of plots) near.observe(plot); }, 0));

for (const section of document.querySelectorAll("details")) {
  section.addEventListener("toggle", () => {
    if (!section.open) return;
    for (const plot of section.querySelectorAll('.plot[data-state="drawn"]')) Plotly.Plots.resize(plot);
  });
}
function recolour() {
  for (const plot of plots) if (plot.dataset.state === "drawn") Plotly.relayout(plot, { "font.color": ink() });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
addEventListener("beforeprint", () => {
  for (const section of document.querySelectorAll("details")) section.open = true;
  for (const plot of plots) draw(plot);
  recolour();
});
