// The neuron explorer: sliders, and three neurons drawn from them.
"use strict";
(() => {
  const STEPS = 240, OMEGAS = Array.from({ length: 200 }, (_, i) => Math.PI * i / 199);
  const PIXELS = JSON.parse(document.getElementById("data").textContent).pixels;
  const form = document.getElementById("settings");
  const short = (value) => Number(value.toPrecision(3)).toString();

  // Sliders: name, label, lowest, highest, start, whether logarithmic, and the inputs they belong to (none: all).
  const SLIDERS = [
    ["delta", "Δ, size of a step", 0.01, 1, 1, true], ["theta", "θ, frequency", 0, Math.PI, 2 * Math.PI / 40, false],
    ["tau", "τ, decay time", 1, 1000, 600, true], ["threshold", "threshold", 0.05, 20, 1.5, true], ["count", "resonators of the third", 2, 8, 4, false, null, 1],
    ["amplitude", "size of the input", 0.05, 20, 1, true], ["first", "first pulse, or begin", 0, 120, 40, false, ["pulses", "step"], 1],
    ["second", "second pulse, or end", 121, 239, 200, false, ["pulses", "step"], 1], ["shift", "first pulse later by", 0, 80, 10, false, ["pulses"], 1],
    ["seed", "seed", 0, 99, 0, false, ["noise"], 1], ["row", "from row", 0, 19, 6, false, ["digit"], 1],
  ];
  const PRESETS = {
    fast: { delta: 1, tau: 8, theta: 0 }, slow: { delta: 1, tau: 600, theta: 0 }, resonance: { delta: 1, tau: 600, theta: 2 * Math.PI / 40 },
  };

  // Where a value is on its slider: integers as they are, others in a thousand parts.
  function position([, , low, high, , log, , whole], value) {
    return whole ? value : Math.round(1000 * (log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low)));
  }
  function value(slider) {
    const [name, , low, high, , log, , whole] = slider, at = form.elements[name].valueAsNumber;
    if (whole) return at;
    return log ? low * (high / low) ** (at / 1000) : low + (high - low) * at / 1000;
  }

  function build() {
    for (const slider of SLIDERS) {
      const [name, label, low, high, start, , , whole] = slider;
      const input = Object.assign(document.createElement("input"), { type: "range", name, id: name, min: whole ? low : 0, max: whole ? high : 1000, step: 1 });
      input.value = position(slider, start);
      const output = Object.assign(document.createElement("output"), { id: `${name}-value` });
      output.setAttribute("for", name);
      const text = Object.assign(document.createElement("label"), { htmlFor: name, textContent: label });
      const row = Object.assign(document.createElement("div"), { className: "slider", id: `${name}-row` });
      row.append(text, input, output);
      form.querySelector(".sliders").append(row);
    }
    form.addEventListener("input", draw);
    form.addEventListener("submit", (event) => event.preventDefault());
    for (const button of form.querySelectorAll("button[data-preset]")) {
      button.addEventListener("click", () => {
        const preset = { ...PRESETS[button.dataset.preset], amplitude: 1, first: 40, second: 200, shift: 10, threshold: 20 };
        for (const slider of SLIDERS) if (slider[0] in preset) form.elements[slider[0]].value = position(slider, preset[slider[0]]);
        form.elements.input.value = "pulses";
        form.elements.reset.value = "none";
        draw();
      });
    }
  }

  const make = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, each] of Object.entries(attributes)) made.setAttribute(name, each);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Lines over a range of x, with the lowest and highest value beside them; `marks` are ticks at the lower edge.
  function chart(target, { x, lines, level, marks = [], label, unit }) {
    const values = lines.flatMap((line) => line.values).concat(level === undefined ? [] : [level]).filter(Number.isFinite);
    let low = Math.min(0, ...values), high = Math.max(...values, low + 1e-12);
    const width = 320, height = 130, left = 46, right = 6, top = 8, bottom = 24, end = x[x.length - 1];
    const px = (value) => left + (width - left - right) * (value - x[0]) / Math.max(1e-12, end - x[0]);
    const py = (value) => top + (height - top - bottom) * (1 - (value - low) / (high - low));
    const parts = [
      make("line", { x1: left, x2: width - right, y1: py(0), y2: py(0), class: "axis" }), make("text", { x: left - 4, y: py(high) + 9, "text-anchor": "end" }, short(high)),
      make("text", { x: left - 4, y: py(low), "text-anchor": "end" }, short(low)), make("text", { x: left, y: height - 6 }, short(x[0])),
      make("text", { x: width - right, y: height - 6, "text-anchor": "end" }, short(end)), make("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" }, unit),
    ];
    if (level !== undefined) parts.push(make("line", { x1: left, x2: width - right, y1: py(level), y2: py(level), class: "level" }));
    for (const line of lines) parts.push(make("polyline", { points: line.values.map((each, i) => `${px(x[i]).toFixed(1)},${py(each).toFixed(1)}`).join(" "), class: line.style }));
    for (const [at, style] of marks) parts.push(make("line", { x1: px(at), x2: px(at), y1: height - bottom - (style === "spike" ? 12 : 0), y2: height - bottom + (style === "spike" ? 0 : 7), class: style }));
    target.setAttribute("viewBox", `0 0 ${width} ${height}`);
    target.setAttribute("aria-label", label);
    target.replaceChildren(...parts);
  }

  const ticks = (spikes, style) => spikes.flatMap((fired, t) => fired ? [[t, style]] : []);

  function draw() {
    const kind = form.elements.input.value, reset = form.elements.reset.value;
    const set = Object.fromEntries(SLIDERS.map((slider) => [slider[0], value(slider)]));
    for (const [name, , , , , , inputs] of SLIDERS) {
      document.getElementById(`${name}-value`).textContent = short(set[name]);
      document.getElementById(`${name}-row`).hidden = Boolean(inputs) && !inputs.includes(kind);
    }
    const steps = Array.from({ length: STEPS }, (_, t) => t), two = kind === "pulses";
    const settings = { ...set, pixels: PIXELS };
    // Of two pulses, also the case in which the first comes later.
    const cases = (two ? [0, set.shift] : [0]).map((shift) => Neurons.input(kind, STEPS, { ...settings, shift }));
    const several = Neurons.bands(set.theta, set.count), common = { delta: set.delta, tau: set.tau, threshold: set.threshold, reset };
    const neurons = {
      lif: { linear: { thetas: [0], mix: [1] }, run: (current) => Neurons.lif(current, { ...common, beta: Math.exp(-set.delta / set.tau), gain: set.delta }) },
      prf: { linear: { thetas: [set.theta], mix: [1] }, run: (current) => Neurons.prf(current, { ...common, theta: set.theta }) },
      several: { linear: several, run: (current) => Neurons.resonators(current, { ...common, ...several }) },
    };
    chart(document.getElementById("input-chart"), { x: steps, lines: cases.map((values, i) => ({ values, style: i ? "second" : "first" })).reverse(), label: `input: ${kind}`, unit: "time step" });
    for (const [name, { linear, run }] of Object.entries(neurons)) {
      const runs = cases.map(run), part = (which) => document.getElementById(`${name}-${which}`), filter = { ...linear, delta: set.delta, tau: set.tau };
      const fired = runs[0].spikes.reduce((a, b) => a + b, 0);
      chart(part("potential"), { x: steps, lines: runs.map(({ potential }, i) => ({ values: potential, style: i ? "second" : "first" })).reverse(), level: set.threshold,
        marks: [...ticks(runs[0].spikes, "spike"), ...(two ? ticks(runs[1].spikes, "spike-second") : [])], label: `potential, ${fired} spikes`, unit: "time step" });
      chart(part("kernel"), { x: steps, lines: [{ values: Neurons.kernel(STEPS, filter), style: "first" }], label: "kernel", unit: "steps after the input" });
      // A peak may be narrower than the grid.
      const omegas = [...OMEGAS, ...linear.thetas.map((theta) => theta * set.delta)].filter((omega) => omega <= Math.PI).sort((a, b) => a - b);
      const sizes = Neurons.response(omegas, filter), peak = omegas[sizes.indexOf(Math.max(...sizes))];
      chart(part("response"), { x: omegas, lines: [{ values: sizes, style: "first" }], label: `frequency response, highest at ${short(peak)}`, unit: "radians per step" });
      let words = `${fired} spikes; memory ${short(set.tau / set.delta)} steps; loudest at ${short(peak)} radians per step`;
      if (two) words += `. At the second pulse the two cases differ by ${short(Math.abs(runs[0].potential[set.second] - runs[1].potential[set.second]))}`;
      part("words").textContent = `${words}.`;
    }
    document.getElementById("cases").hidden = !two;
    document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
  }

  build();
  draw();
})();
