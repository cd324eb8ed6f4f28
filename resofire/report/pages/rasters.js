// The raster of one sequence: input, running answer and the potentials of all layers over one axis of time.
"use strict";
const Rasters = (() => {
  const { text, percent, base, line } = Charts;

  const bytes = (packed) => Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));

  // Rows of the heat map, each {layer, neuron, cells}; null separates two layers.
  function rows(sample) {
    const cells = new Int8Array(bytes(sample.cells).buffer), found = [];
    let at = 0;
    sample.layers.forEach((layer, number) => {
      if (number) found.push(null);
      for (const neuron of layer.kept) {
        found.push({ layer, neuron, cells: cells.subarray(at, at + sample.shown) });
        at += sample.shown;
      }
    });
    return found;
  }

  // How far a potential is from its threshold, as `raster.py` packs it into a byte.
  const distance = (byte, layer) => (byte >= 0 ? byte : byte + 1) / 127 * layer.scale;

  function words(sample, found, row, step) {
    const here = found[row];
    if (!here) return "";
    const byte = here.cells[step], above = distance(byte, here.layer).toPrecision(3).replace("-", "");
    const potential = here.layer.potentials ? `, potential ${above} ${byte >= 0 ? "above" : "below"} its threshold` : "";
    return `${here.layer.title}, neuron ${here.neuron}, step ${step}: ${byte >= 0 ? "spike" : "silent"}${potential}`;
  }

  function figure(sample, classes, look, narrow) {
    const found = rows(sample), steps = Array.from({ length: sample.shown }, (_, i) => i), data = [];
    const heights = { input: 110, running: sample.running.missing ? 0 : 150, raster: Math.min(1600, Math.max(160, 3 * found.length)) };
    // Entries of a legend are all as wide as the widest, and the wider they are the fewer fit beside each other.
    const longest = Math.max(0, ...sample.running.missing ? [] : sample.running.classes.map((number) => Math.min(28, [...String(classes[number])].length + 7)));
    const lines = sample.running.missing ? 0 : Math.ceil(sample.running.classes.length / Math.max(1, Math.floor((narrow ? 280 : 700) / (45 + 6 * longest))));
    const gaps = { input: Math.max(34, 15 + 17 * lines), running: 34, raster: 34 };
    const height = heights.input + heights.running + heights.raster + gaps.input + 2 * gaps.running + 60;
    const inner = height - 75, domains = {};
    let top = 1;
    for (const name of ["input", "running", "raster"]) {
      domains[name] = [Math.max(0, top - heights[name] / inner), top];
      top = Math.max(0, domains[name][0] - gaps[name] / inner);
    }
    if (sample.input.symbols) {
      const shown = sample.input.symbols.map((symbol) => text(symbol === " " ? "␣" : symbol));
      const codes = new Map([...new Set(shown)].sort().map((symbol, number) => [symbol, number]));
      data.push({ type: "heatmap", x: steps, y: [0], z: [shown.map((symbol) => codes.get(symbol))], customdata: [shown], showscale: false, colorscale: "Cividis",
        yaxis: "y", hovertemplate: "step %{x}: %{customdata}<extra>input</extra>" });
    } else {
      sample.input.lines.forEach((values, number) => data.push(line(look, number, `channel ${number}`, steps, values, {
        yaxis: "y", showlegend: false, line: { color: look.colours[number % 8], width: 1.3 }, hovertemplate: `step %{x}: %{y:.3g}<extra>input</extra>` })));
    }
    if (!sample.running.missing) {
      const packed = bytes(sample.running.values);
      sample.running.classes.forEach((number, place) => {
        const values = Array.from(packed.subarray(place * sample.shown, (place + 1) * sample.shown), (byte) => byte / 255);
        const own = number === sample.label && !sample.per_step;
        data.push(line(look, place, `${classes[number]}${own ? " (true)" : ""}`, steps, values, {
          yaxis: "y2", line: { color: look.colours[place % 8], width: own ? 3.5 : 1.5, dash: own ? "solid" : ["dash", "dot", "dashdot", "longdash"][place % 4] },
          hovertemplate: `step %{x}: %{y:.0%}<extra>${text(classes[number])}</extra>` }));
      });
    }
    const z = found.map((row) => row ? Array.from(row.cells, (byte) => byte / 127) : new Array(sample.shown).fill(null));
    data.push({ type: "heatmap", name: "neurons", x: steps, z, zmin: -1, zmax: 1, yaxis: "y3", showscale: false, hoverongaps: false, hoverinfo: "none",
      colorscale: [[0, look.far], [0.4999, look.near], [0.5, look.spike], [1, look.spike]] });
    const centres = new Map();
    found.forEach((row, number) => { if (row) centres.set(row.layer, [...(centres.get(row.layer) ?? []), number]); });
    const every = Math.ceil(centres.size / (heights.raster / 16)), labelled = [...centres].filter((_, i) => i % every === 0);
    const labels = labelled.map(([layer]) => text(narrow ? layer.title.replace("block ", "").replace(/temporal/, "t").replace(/spatial/, "s") : layer.title));
    const shapes = (sample.bounds ?? []).slice(1, -1).map((at) => ({ type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line: { color: look.warn, dash: "dot" } }));
    const layout = base(look, height, {
      margin: { l: narrow ? 40 : 70, r: 10, t: 30, b: 45 }, shapes, legend: { orientation: "h", y: domains.running[1], yanchor: "bottom", x: 0, font: { size: 11 } },
      xaxis: { title: { text: "time step" }, anchor: "y3", range: [-0.5, sample.shown - 0.5] },
      yaxis: { domain: domains.input, title: { text: "input" }, ...(sample.input.symbols ? { showticklabels: false } : {}) },
      yaxis3: { domain: domains.raster, autorange: "reversed", tickvals: labelled.map(([, places]) => places[Math.floor(places.length / 2)]), ticktext: labels, showgrid: false },
      ...(sample.running.missing ? {} : { yaxis2: { domain: domains.running, title: { text: "answer" }, range: [0, 1.02], tickformat: ".0%" } }),
    });
    return { data, layout };
  }

  return { figure, rows, words, bytes, percent };
})();
