// Draws the charts when they come near the screen, and makes legends, menus and the theme work.
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const drawn = new Set();

  // ---- colours: "var(--name)" and "var(--name, 0.2)" stand for properties of the style sheet

  const probe = document.body.appendChild(document.createElement("span"));
  probe.hidden = true;
  const colour = (text) => {
    const [, name, alpha] = /^var\((--[\w-]+)(?:, ([\d.]+))?\)$/.exec(text) ?? [];
    if (!name) return text;
    probe.style.color = `var(${name})`;
    const solid = getComputedStyle(probe).color;
    return alpha ? solid.replace("rgb(", "rgba(").replace(")", `, ${alpha})`) : solid;
  };
  const paint = (value, key = "") => {
    if (typeof value === "string") return /color(scale)?$/.test(key) ? colour(value) : value;
    if (key === "x" || key === "z") return value; // long, and without colours
    if (Array.isArray(value)) return value.map((one) => paint(one, key));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, paint(one, name)]));
  };

  // ---- drawing

  const family = getComputedStyle(document.body).fontFamily;
  const narrow = matchMedia("(max-width: 40rem)");
  const touch = matchMedia("(pointer: coarse)");
  const options = {
    displaylogo: false,
    displayModeBar: touch.matches ? false : "hover",
    showSendToCloud: false, // nothing leaves this page
    plotlyServerURL: "",
    responsive: true,
    doubleClick: "reset",
    modeBarButtonsToRemove: ["select2d", "lasso2d"],
  };
  const layoutOf = (chart) => {
    const layout = paint(chart.layout);
    if (narrow.matches && layout.hovermode === "x unified") layout.hovermode = "closest";
    return {
      ...layout,
      showlegend: false,
      autosize: true,
      height: chart.height,
      dragmode: touch.matches ? false : "zoom", // a finger scrolls the page
      margin: { l: 8, r: 8, t: touch.matches ? 8 : 28, b: 8 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family, size: 12, color: colour("var(--soft)") },
      hoverlabel: {
        bgcolor: colour("var(--paper)"),
        bordercolor: colour("var(--grid)"),
        font: { color: colour("var(--ink)") },
      },
      modebar: { color: colour("var(--soft)"), activecolor: colour("var(--accent)"), bgcolor: "rgba(0,0,0,0)" },
    };
  };
  const draw = (figure) => {
    const chart = charts[figure.id];
    const plot = figure.querySelector(".plot");
    const done = Plotly.react(plot, paint(chart.traces), layoutOf(chart), options);
    drawn.add(figure);
    return done.then(() => {
      for (const one of plot.querySelectorAll(".main-svg")) {
        one.setAttribute("aria-hidden", "true"); // the label and the table tell it in words
      }
      figure.dataset.drawn = "yes";
    });
  };

  // ---- what is shown: groups by buttons, one view at a time by a menu

  const show = (figure) => {
    const chart = charts[figure.id];
    const hidden = figure.querySelectorAll('[data-group][aria-pressed="false"]');
    const off = new Set([...hidden].map((one) => one.dataset.group));
    const view = figure.querySelector("select")?.value ?? "0";
    for (const trace of chart.traces) {
      const { group, view: own } = trace.meta ?? {};
      trace.visible = !off.has(group) && (own === undefined || own === view);
    }
    const log = figure.querySelector('[data-log][aria-pressed="true"]') !== null;
    chart.range ??= chart.layout.yaxis.range;
    Object.assign(chart.layout.yaxis, {
      type: log ? "log" : "linear",
      dtick: log ? 1 : null,
      range: log ? null : chart.range,
      autorange: log || !chart.range,
    });
    chart.layout.uirevision = log ? "log" : "linear"; // a reader's zoom stays until this changes
    if (drawn.has(figure)) draw(figure);
  };

  const figures = [...document.querySelectorAll("figure.chart")];
  const watcher = new IntersectionObserver(
    (seen) => {
      for (const { isIntersecting, target } of seen) {
        if (!isIntersecting) continue;
        watcher.unobserve(target);
        draw(target);
      }
    },
    { rootMargin: "600px" },
  );
  for (const figure of figures) {
    for (const button of figure.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
        show(figure);
      });
    }
    figure.querySelector("select")?.addEventListener("change", () => show(figure));
    show(figure);
    watcher.observe(figure);
  }
  addEventListener("beforeprint", () => figures.filter((one) => !drawn.has(one)).forEach(draw));

  // ---- tables: those that are cut off say so

  const tables = new ResizeObserver((seen) => {
    requestAnimationFrame(() => {
      for (const { target } of seen) {
        target.classList.toggle("cut", target.scrollWidth > target.clientWidth + 1);
      }
    });
  });
  document.querySelectorAll(".scroll").forEach((one) => tables.observe(one));

  // ---- light and dark

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const other = () => {
    const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
    return now === "dark" ? "light" : "dark";
  };
  const repaint = () => {
    button.textContent = other() === "light" ? "Light colours" : "Dark colours";
    drawn.forEach(draw);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = other();
    repaint();
  });
  dark.addEventListener("change", repaint);
  narrow.addEventListener("change", repaint);
  repaint();

  // ---- the contents: open beside a wide page, folded on a phone

  const wide = matchMedia("(min-width: 75rem)");
  const contents = document.querySelector("nav details");
  const unfold = () => (contents.open = wide.matches);
  wide.addEventListener("change", unfold);
  unfold();
})();
