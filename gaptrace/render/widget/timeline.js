// The timeline of a notebook. Python draws; this shows what it drew, and asks for another window
// when the user chooses one. `Plotly` is defined by what Python puts before this.

const PER_MS = 1e6; // times of the figure are in ms, windows in ns
const SETTLED_MS = 80; // a wheel turns in many small steps: only the last one is asked for

const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);

function render({ model, el }) {
  const plot = document.createElement("div");
  plot.className = "gaptrace-timeline";
  el.append(plot);
  let waiting = 0;

  const draw = async () => {
    const { window, figure } = JSON.parse(model.get("picture"));
    // Of several windows asked for in a row, only the last one is drawn.
    if (isSame(window, model.get("window"))) {
      await Plotly.react(plot, figure.data, figure.layout, config);
      plot.dataset.window = JSON.stringify(window);
    }
  };
  const ask = (window) => {
    clearTimeout(waiting);
    if (isSame(window, model.get("window"))) {
      draw();
    } else {
      model.set("window", window);
      model.save_changes();
    }
  };
  const config = {
    responsive: true,
    displaylogo: false,
    doubleClick: false,
    modeBarButtonsToRemove: [
      "autoScale2d", "resetScale2d", "select2d", "lasso2d",
      "sendChartToCloud", // names of kernels and ranges are nobody else's
    ],
    modeBarButtonsToAdd: [
      { name: "whole", title: "The whole", icon: Plotly.Icons.home, click: () => ask(null) },
    ],
  };

  const listen = () => {
    plot.on("plotly_doubleclick", () => ask(null));
    plot.on("plotly_relayout", (change) => {
      if (Object.keys(change).some((key) => key.startsWith("xaxis"))) {
        clearTimeout(waiting);
        const range = plot.layout.xaxis.range.map((ms) => Math.round(ms * PER_MS));
        waiting = setTimeout(() => ask(range), SETTLED_MS);
      }
    });
  };
  model.on("change:picture", draw);
  // A cell may be hidden while it is drawn, and has no width before it is part of the page.
  const sizes = new ResizeObserver(() => plot.offsetWidth && plot.data && Plotly.Plots.resize(plot));
  sizes.observe(el);
  requestAnimationFrame(() => draw().then(listen));

  return () => {
    clearTimeout(waiting);
    sizes.disconnect();
    model.off("change:picture", draw);
    Plotly.purge(plot);
  };
}

export default { render };
