// Plotly figures from the data of a page. Each function returns {data, layout}; none touches the document.
"use strict";
const Charts = (() => {
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star"];

  // Plotly reads a little HTML in labels; names of classes and tasks are shown as they are.
  const text = (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  // Long names would leave no room for the chart; they are whole where one points at it and in the tables.
  const brief = (value, most = 28) => { const letters = [...String(value)]; return text(letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : value); };
  const percent = (share, digits = 1) => share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}\u00a0%`;

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    const names = ["surface", "raised", "ink", "soft", "line", "accent", "far", "near", "spike", "warn"];
    const colours = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"].map(read);
    const scale = ["cold", "mild", "hot"].map((name, i) => [i / 2, read(name)]);
    return { colours, scale, ...Object.fromEntries(names.map((name) => [name, read(name)])) };
  }

  function base(look, height, more = {}) {
    const axis = { gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, automargin: true, exponentformat: "power" };
    const layout = {
      height, margin: { l: 55, r: 15, t: 30, b: 45 }, paper_bgcolor: look.surface, plot_bgcolor: look.surface,
      font: { color: look.ink, size: 13, family: "system-ui, sans-serif" }, hovermode: "closest",
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, hoverlabel: { align: "left" }, ...more,
    };
    for (const name of Object.keys(layout)) {
      if (/^[xy]axis\d*$/.test(name)) layout[name] = { ...axis, ...layout[name] };
    }
    return layout;
  }

  const line = (look, number, name, x, y, more = {}) => ({
    type: "scatter", mode: "lines", x, y, name: brief(name),
    line: { color: look.colours[number % 8], dash: DASHES[number % 6], width: 2 }, ...more,
  });

  function curves(curves, look, narrow) {
    const panels = [["loss", "loss"], ["accuracy", "accuracy, %"], ["fire_rate", "fire rate, %"]];
    const data = [], shapes = [], annotations = [], axes = {};
    // A run that keeps its last weights is evaluated on training sequences now and then.
    const titles = { train: "training", last: "training, evaluated" };
    const names = Object.keys(curves.splits).sort((a, b) => (a === "train" ? -1 : b === "train" ? 1 : 0));
    panels.forEach(([column, label], panel) => {
      const suffix = panel ? panel + 1 : "";
      names.forEach((name, number) => {
        const split = curves.splits[name], scale = column === "loss" ? 1 : 100;
        if (split[column].every((value) => value === null)) return;
        const few = split.step.length < 60;
        data.push(line(look, number, titles[name] ?? name, split.epoch, split[column].map((value) => value === null ? null : scale * value), {
          xaxis: "x", yaxis: `y${suffix}`, showlegend: panel === 0, legendgroup: name, mode: few ? "lines+markers" : "lines",
          marker: { symbol: SYMBOLS[number], size: 6 }, hovertemplate: `epoch %{x:.3g}<br>${label} %{y:.4g}<extra>${text(titles[name] ?? name)}</extra>`,
        }));
      });
      axes[`yaxis${suffix}`] = { title: { text: label }, domain: [1 - (panel + 1) * 0.34 + 0.04, 1 - panel * 0.34], ...(column === "fire_rate" ? { rangemode: "tozero" } : {}) };
    });
    const chosen = curves.chosen;
    if (chosen) {
      shapes.push({ type: "line", xref: "x", yref: "paper", x0: chosen.epoch, x1: chosen.epoch, y0: 0.02, y1: 1, line: { color: look.warn, width: 2, dash: "dot" } });
      annotations.push({ x: chosen.epoch, y: 0.03, xref: "x", yref: "paper", yanchor: "bottom", showarrow: false, text: "chosen", font: { color: look.warn }, bgcolor: look.surface });
    }
    return { data, layout: base(look, narrow ? 620 : 680, { xaxis: { title: { text: "epoch" }, anchor: "y3" }, ...axes, shapes, annotations }) };
  }

  function confusion(answers, look, narrow) {
    const totals = answers.confusion.map((row) => Math.max(1, row.reduce((a, b) => a + b, 0)));
    const names = answers.classes.map(text), few = names.length <= (narrow ? 10 : 16);
    const z = answers.confusion.map((row, i) => row.map((count) => count / totals[i]));
    const words = answers.confusion.map((row, i) => row.map((count, j) => `${count.toLocaleString("en")} of class ${names[i]}<br>answered as ${names[j]}`));
    const ticks = answers.classes.map((name) => brief(name, 13));
    const axis = (title) => ({ title: { text: title, standoff: 10 }, tickmode: few ? "array" : "auto", tickvals: names.map((_, i) => i), ticktext: ticks, constrain: "domain" });
    const data = [{
      type: "heatmap", z, zmin: 0, zmax: 1, xgap: 1, ygap: 1, customdata: words, hovertemplate: "%{customdata}<extra></extra>",
      colorscale: [[0, look.far], [0.02, look.near], [1, look.colours[0]]], colorbar: { title: { text: "share of<br>the class" }, tickformat: ".0%", len: 0.8 },
      ...(few ? { text: answers.confusion.map((row) => row.map((count) => count ? String(count) : "")), texttemplate: "%{text}" } : {}),
    }];
    const size = narrow ? 380 : 430;
    return { data, layout: base(look, size, { xaxis: axis("answer"), yaxis: { ...axis("class"), autorange: "reversed", scaleanchor: "x" }, margin: { l: 70, r: 10, t: 10, b: 55 } }) };
  }

  function calibration(found, look) {
    const data = [
      line(look, 5, "perfect", [0, 1], [0, 1], { line: { color: look.soft, dash: "dot" }, hoverinfo: "skip" }),
      line(look, 0, "network", found.confidence, found.accuracy, {
        mode: "lines+markers", marker: { symbol: "circle", size: found.count.map((n) => 7 + 3 * Math.log10(n)) }, customdata: found.count,
        hovertemplate: "confidence %{x:.1%}<br>correct %{y:.1%}<br>%{customdata:,} answers<extra></extra>",
      }),
    ];
    const axis = (title) => ({ title: { text: title }, range: [0, 1.03], tickformat: ".0%" });
    return { data, layout: base(look, 400, { xaxis: axis("confidence"), yaxis: axis("correct answers") }) };
  }

  function plane(layers, look, narrow) {
    const data = [], all = (part, key) => layers.flatMap((layer) => layer[part] ? layer[part][key] : []);
    const names = layers.flatMap((layer) => layer.kept.map((number) => `${text(layer.title)}, neuron ${number % layer.neurons}`));
    if (layers.some((layer) => layer.before)) {
      data.push({ type: "scatter", mode: "markers", name: "before training", x: all("before", "frequency"), y: all("before", "memory"), customdata: names,
        marker: { symbol: "circle-open", size: 6, color: look.soft, opacity: 0.7 }, hovertemplate: "%{customdata}<br>before: θΔ %{x:.3g}, τ/Δ %{y:.3g}<extra></extra>" });
    }
    const rates = layers.flatMap((layer) => layer.rate ?? layer.kept.map(() => null));
    const words = names.map((name, i) => `${name}<br>fire rate ${percent(rates[i], 2)}`);
    data.push({ type: "scatter", mode: "markers", name: "after training", x: all("after", "frequency"), y: all("after", "memory"), customdata: words,
      marker: { symbol: "circle", size: 7, color: rates.map((rate) => rate === null ? 0 : 100 * rate), colorscale: look.scale, cmin: 0, line: { width: 0.5, color: look.ink },
        colorbar: { title: { text: "fire<br>rate, %" }, thickness: narrow ? 10 : 18, len: 0.8 } },
      hovertemplate: "%{customdata}<br>after: θΔ %{x:.3g}, τ/Δ %{y:.3g}<extra></extra>" });
    return { data, layout: base(look, narrow ? 400 : 500, { xaxis: { title: { text: "frequency θΔ, radians per step" } }, yaxis: { title: { text: "memory τ/Δ, steps" }, type: "log" } }) };
  }

  function rates(found, look) {
    const data = [], kinds = [...new Set(found.layers.map((layer) => layer.kind))];
    const markers = (number) => ({ mode: "lines+markers", marker: { symbol: SYMBOLS[number % 8], size: 8 } });
    kinds.forEach((kind, number) => {
      const layers = found.layers.filter((layer) => layer.kind === kind);
      data.push(line(look, number, kind, layers.map((layer) => layer.block), layers.map((layer) => 100 * layer.rate), {
        ...markers(number), hovertemplate: `block %{x}: %{y:.2f} %<extra>${text(kind)}</extra>` }));
    });
    for (const [number, kind] of ["temporal", "spatial"].entries()) {
      if (!found.paper) break;
      const values = found.paper[kind];
      data.push(line(look, 4 + number, `paper, ${found.paper.name}, ${kind}`, values.map((_, i) => i + 1), values, {
        ...markers(4 + number), hovertemplate: `block %{x}: %{y:.2f} %<extra>paper, ${kind}</extra>` }));
    }
    const blocks = Math.max(...found.layers.map((layer) => layer.block), found.paper ? found.paper.temporal.length : 1);
    return { data, layout: base(look, 420, { xaxis: { title: { text: "block" }, dtick: blocks > 20 ? undefined : 1, range: [0.5, blocks + 0.5] }, yaxis: { title: { text: "fire rate, %" }, rangemode: "tozero" } }) };
  }

  function bars(rows, look, title, more = {}) {
    const names = rows.map((row) => text(row.name));
    const data = [{ type: "bar", orientation: "h", y: rows.map((_, i) => i), x: rows.map((row) => row.value), text: rows.map((row) => row.note), textposition: "auto", textangle: 0,
      customdata: names, marker: { color: rows.map((row) => look.colours[row.own ? 1 : 0]), pattern: { shape: rows.map((row) => row.own ? "/" : "") } }, hovertemplate: "%{customdata}: %{x:.4g}<extra></extra>" }];
    return { data, layout: base(look, 110 + 36 * rows.length, { margin: { l: 60, r: 15, t: 10, b: 45 },
      xaxis: { title: { text: title }, ...more }, yaxis: { autorange: "reversed", tickvals: rows.map((_, i) => i), ticktext: names } }) };
  }

  return { theme, base, line, text, brief, percent, curves, confusion, calibration, plane, rates, bars, SYMBOLS };
})();
