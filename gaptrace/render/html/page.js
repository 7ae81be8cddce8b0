"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const plots = [];
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");

  // A file opened from disk may be without storage: then the choice lasts as long as the page.
  const stored = () => { try { return localStorage.getItem("gaptrace-theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("gaptrace-theme", theme); } catch { /* none */ } };

  const colors = () => {
    const style = getComputedStyle(root);
    return { ink: style.getPropertyValue("--ink").trim(), page: style.getPropertyValue("--page").trim() };
  };

  // Figures are made to be readable anywhere; here they take the page's own ink.
  const paint = (plot) => {
    const { ink, page } = colors();
    const inner = plot.data.map((trace, at) => (trace.text ? at : -1)).filter((at) => at >= 0);
    const wanted = { "font.color": ink, "hoverlabel.bgcolor": page, "hoverlabel.font.color": ink, "hoverlabel.bordercolor": ink };
    Plotly.relayout(plot, wanted);
    if (inner.length) Plotly.restyle(plot, { "insidetextfont.color": ink }, inner);
  };

  // Legends of several rows take their place from the page, not from what is drawn.
  const ONE_ROW = 29;
  const heights = new Map();
  const fit = async (plot) => {
    if (!plot.clientWidth) return; // folded: it has no size
    const rows = plot._fullLayout.showlegend ? plot._fullLayout.legend._height : 0;
    // A legend that is higher than half of its figure would be scrolled.
    const height = `${Math.max(heights.get(plot) + Math.max(0, rows - ONE_ROW), 2 * rows)}px`;
    if (plot.style.height === height) return;
    plot.style.height = height;
    await Plotly.Plots.resize(plot);
  };

  const show = (theme) => {
    root.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    plots.forEach(paint);
  };
  const current = () => stored() || (prefersDark.matches ? "dark" : "light");

  button.hidden = false;
  button.addEventListener("click", () => {
    const theme = root.dataset.theme === "dark" ? "light" : "dark";
    store(theme);
    show(theme);
  });
  prefersDark.addEventListener("change", () => show(current()));
  show(current());

  const config = {
    responsive: true,
    displaylogo: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"],
    toImageButtonOptions: { format: "svg" },
  };
  const draw = async (script) => {
    const plot = document.getElementById(script.dataset.plot);
    const { data, layout } = JSON.parse(script.textContent);
    delete layout.height;
    layout.autosize = true;
    heights.set(plot, parseFloat(plot.style.height));
    await Plotly.newPlot(plot, data, layout, config);
    plots.push(plot);
    paint(plot);
    await fit(plot);
  };
  // One at a time, so that the page can be read and scrolled meanwhile.
  const drawAll = async () => {
    for (const script of document.querySelectorAll("script.figure")) {
      await draw(script);
      await new Promise((next) => setTimeout(next, 0));
    }
    root.dataset.drawn = "true";
  };
  drawAll();

  // Folded figures have no size until they are unfolded.
  document.querySelectorAll("details").forEach((details) => {
    details.addEventListener("toggle", () => {
      details.querySelectorAll(".plot").forEach((plot) => plots.includes(plot) && Plotly.Plots.resize(plot).then(() => fit(plot)));
    });
  });
  let settled = 0;
  window.addEventListener("resize", () => {
    clearTimeout(settled);
    settled = setTimeout(() => plots.forEach(fit), 200);
  });

  // Paper is white and narrower than a screen.
  const PAPER_WIDTH = 680;
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open])")] };
    before.closed.forEach((details) => { details.open = true; });
    show("light");
    plots.forEach((plot) => Plotly.relayout(plot, { width: PAPER_WIDTH }));
  });
  window.addEventListener("afterprint", () => {
    if (!before) return;
    plots.forEach((plot) => Plotly.relayout(plot, { width: null, autosize: true }));
    before.closed.forEach((details) => { details.open = false; });
    show(before.theme);
    before = null;
  });
})();
