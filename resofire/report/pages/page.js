// Puts the data of the page into its sections; in a live page, again whenever they change.
"use strict";
(() => {
  const { text, percent, theme } = Charts;
  const OPTIONS = { responsive: true, displaylogo: false, displayModeBar: false };
  const narrow = () => window.innerWidth < 560;
  let data = JSON.parse(document.getElementById("data").textContent);
  let look = theme();
  const kept = new Map();     // what a person chose, by the name of the choice
  const drawn = new Map();    // sections by their content, so that only changed ones are drawn again

  function h(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }
  const missing = (section) => h("p", { class: "missing" }, section.missing);
  const count = (value) => value.toLocaleString("en");

  function table(head, rows, attributes = {}) {
    const cells = (row, tag) => h("tr", {}, ...row.map((cell) => h(tag, tag === "th" ? { scope: "col" } : {}, cell)));
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": attributes.label ?? "table" },
      h("table", {}, h("thead", {}, cells(head, "th")), h("tbody", {}, ...rows.map((row) => cells(row, "td")))));
  }

  function plot(figure, label, caption) {
    const target = h("div", { class: "plot", role: "img", "aria-label": label });
    const made = h("figure", {}, target, caption ? h("figcaption", {}, caption) : null);
    made.draw = () => Plotly.react(target, ...Object.values(figure()), OPTIONS);
    made.target = target;
    return made;
  }

  // A choice that survives new data; `change` is called with its value.
  function choice(name, label, values, change) {
    const select = h("select", {}, ...values.map(([value, words]) => h("option", { value }, words)));
    if (kept.has(name) && values.some(([value]) => value === kept.get(name))) select.value = kept.get(name);
    select.addEventListener("change", () => { kept.set(name, select.value); change(select.value); });
    return [h("label", {}, `${label} `, select), select];
  }

  function picture(drawing, words) {
    if (drawing.kind === "pair") return h("div", {}, ...drawing.parts.map((part, i) => picture(part, `${words}, document ${i + 1}`)));
    if (drawing.kind === "text") return h("pre", { class: "text", tabindex: "0", "aria-label": words }, drawing.text + (drawing.more ? ` … (${count(drawing.more)} more)` : ""));
    if (drawing.kind === "image") {
      const canvas = h("canvas", { width: drawing.width, height: drawing.height, role: "img", "aria-label": words });
      const pixels = Rasters.bytes(drawing.pixels), image = new ImageData(drawing.width, drawing.height), each = drawing.channels;
      for (let i = 0; i < drawing.width * drawing.height; i += 1) {
        for (let c = 0; c < 3; c += 1) image.data[4 * i + c] = pixels[each * i + (each === 3 ? c : 0)];
        image.data[4 * i + 3] = 255;
      }
      const all = pixels.reduce((most, value) => Math.max(most, value), 1);
      if (all < 128) for (let i = 0; i < image.data.length; i += 1) if (i % 4 < 3) image.data[i] *= 255 / all;
      canvas.getContext("2d").putImageData(image, 0, 0);
      return canvas;
    }
    const values = drawing.lines.flat().filter((value) => value !== null), low = Math.min(...values), high = Math.max(...values);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), last = Math.max(1, drawing.at[drawing.at.length - 1]);
    for (const [name, value] of [["viewBox", "0 0 300 100"], ["preserveAspectRatio", "none"], ["role", "img"], ["aria-label", words]]) svg.setAttribute(name, value);
    drawing.lines.forEach((values, number) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
      path.setAttribute("points", values.map((value, i) => value === null ? "" : `${(300 * drawing.at[i] / last).toFixed(1)},${(95 - 90 * (value - low) / Math.max(1e-12, high - low)).toFixed(1)}`).join(" "));
      path.setAttribute("fill", "none");
      path.setAttribute("stroke", look.colours[number % 8]);
      path.setAttribute("vector-effect", "non-scaling-stroke");
      svg.append(path);
    });
    return svg;
  }

  // Lines break between words, not behind the hyphens of a flag.
  const command = (words) => h("code", {}, ...words.split(" ").flatMap((word, i) => [i ? " " : "", h("span", {}, word)]));
  const tiles = (rows) => h("div", { class: "tiles" }, ...rows.map((tile) => h("div", { class: "tile" }, h("span", {}, tile.label), h("b", {}, tile.value), h("span", {}, tile.note))));
  const name = (number) => data.classes[number] ?? String(number);

  const SECTIONS = {
    summary: () => [tiles(data.tiles), h("table", { class: "details" }, h("tbody", {}, ...data.details.map((row) => h("tr", {}, h("th", { scope: "row" }, row.label), h("td", {}, row.code ? command(row.value) : row.value)))))],
    curves: () => {
      if (!Object.keys(data.curves.splits).length) return [h("p", { class: "missing" }, "No step has been recorded yet.")];
      const chosen = data.curves.chosen;
      const words = chosen ? `The dotted line is the network that was kept: epoch ${chosen.epoch.toPrecision(3)}, ${data.curves.split} accuracy ${percent(chosen.accuracy, 2)}.` : "No validation has been recorded yet.";
      return [plot(() => Charts.curves(data.curves, look, narrow()), "Learning curves: loss, accuracy and fire rate by epoch", words)];
    },
    answers: () => {
      const found = data.answers;
      if (found.missing) return [missing(found)];
      const read = `${data.data.split} split, ${count(data.data.count)} of ${count(data.data.of)} sequences: ${count(found.correct)} of ${count(found.count)} answers correct.`;
      const left = found.left_out ? ` The ${found.classes.length} classes with the most mistakes; ${count(found.left_out)} are left out.` : "";
      const rows = found.by_class.map((row, i) => [found.classes[i], count(row.count), percent(row.precision), percent(row.recall), percent(row.f1)]);
      return [h("p", { class: "note" }, read + left), h("div", { class: "two" },
        plot(() => Charts.confusion(found, look, narrow()), "Confusion matrix", "Confusion matrix: rows are classes, columns answers."),
        plot(() => Charts.calibration(found.calibration, look), "Calibration", `Calibration: share of correct answers by confidence. Expected calibration error ${percent(found.calibration.error)}.`)),
        table(["class", found.count === data.data.count ? "sequences" : "labels", "precision", "recall", "F1"], rows, { label: "Precision and recall of each class" })];
    },
    rasters: () => {
      if (data.rasters.missing) return [missing(data.rasters)];
      if (!data.rasters.length) return [h("p", { class: "missing" }, "There is no sequence to draw.")];
      const words = (sample) => `${data.data.split} sequence ${sample.row}: ` + (sample.per_step ? "a label for every step" : `class ${name(sample.label)}, answered ${name(sample.answer)} (${percent(sample.confidence)})`);
      const values = data.rasters.map((sample, i) => [String(i), words(sample)]);
      const caption = h("p", { class: "note hint", "aria-live": "polite", id: "potential" }, "Point at a neuron, or focus the raster and use the arrow keys, to read its potential.");
      const beside = h("div", { class: "card" });
      let sample, found, at = [0, 0];
      const figure = plot(() => Rasters.figure(sample, data.classes, look, narrow()), "Spike raster", null);
      figure.target.setAttribute("tabindex", "0");
      const show = (value) => {
        sample = data.rasters[Number(value)];
        found = Rasters.rows(sample);
        at = [0, 0];
        beside.replaceChildren(picture(sample.drawing, words(sample)));
        const cut = sample.shown < sample.steps ? ` The first ${count(sample.shown)} of ${count(sample.steps)} steps.` : "";
        const part = sample.layers.some((layer) => layer.kept.length < layer.neurons) ? " Of wide layers, evenly spaced neurons." : "";
        const whole = sample.running.whole ? " The network is bidirectional: its neurons have read the whole sequence, and the answer pools the steps so far." : "";
        note.textContent = `${words(sample)}. From the top: input, ${sample.running.missing ? "" : "answer so far, "}potentials (shaded) and spikes (dark or bright) of every layer.${cut}${part}${whole} ${sample.running.missing ?? ""}`;
      };
      const note = h("p", { class: "note" });
      const [label, select] = choice("raster", "Sequence", values, (value) => { show(value); figure.draw(); });
      show(select.value);
      const tell = (row, step, event) => {
        const said = Rasters.words(sample, found, row, step);
        if (!said) return;
        caption.textContent = said;
        const tip = document.getElementById("tip");
        tip.hidden = !event;
        tip.textContent = said;
        if (event) { tip.style.left = `${Math.min(event.clientX + 12, window.innerWidth - 220)}px`; tip.style.top = `${event.clientY + 14}px`; }
      };
      figure.wire = () => {
        figure.target.on("plotly_hover", (hovered) => { const point = hovered.points.find((each) => each.data.name === "neurons"); if (point) tell(point.pointIndex[0], point.pointIndex[1], hovered.event); });
        figure.target.on("plotly_unhover", () => { document.getElementById("tip").hidden = true; });
      };
      figure.target.addEventListener("keydown", (event) => {
        const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0] }[event.key];
        if (!move) return;
        event.preventDefault();
        at = [Math.max(0, Math.min(found.length - 1, at[0] + move[0])), Math.max(0, Math.min(sample.shown - 1, at[1] + move[1]))];
        if (!found[at[0]]) at[0] += Math.sign(move[0]);
        tell(at[0], at[1], null);
      });
      return [label, note, beside, caption, figure];
    },
    plane: () => {
      if (data.plane.missing) return [missing(data.plane)];
      const layers = data.plane.layers, values = [["all", "all layers"], ...layers.map((layer, i) => [String(i), layer.title])];
      let shown = layers;
      const figure = plot(() => Charts.plane(shown, look, narrow()), "Neurons by frequency and memory", `Fire rates over ${count(data.plane.sequences)} sequences. ${data.plane.note ?? ""}`);
      const pick = (value) => { shown = value === "all" ? layers : [layers[Number(value)]]; };
      const [label, select] = choice("plane", "Layer", values, (value) => { pick(value); figure.draw(); });
      pick(select.value);
      return [label, figure];
    },
    rates: () => {
      if (data.rates.missing) return [missing(data.rates)];
      const paper = data.rates.paper ? `Beside them those that the paper prints for its network on ${data.rates.paper.name}.` : "The paper prints no fire rates for this task.";
      return [plot(() => Charts.rates(data.rates, look), "Fire rate of each layer", paper)];
    },
    energy: () => {
      const found = data.energy;
      if (found.missing) return [missing(found)];
      const total = found.energy.pJ_per_step;
      const parts = Object.entries(found.energy.components).map(([part, each]) => ({ name: part, value: each.pJ_per_step / 1000, note: percent(each.pJ_per_step / total, 0) }));
      const own = found.energy.mJ_per_inference;
      const peers = [{ name: "this network", value: own, own: true, note: `${own.toPrecision(3)} mJ` }, ...Object.values(found.peers).map((peer) => ({ name: peer.title, value: peer.energy.mJ_per_inference, note: `${peer.energy.times_ours.toPrecision(3)} times` }))];
      return [h("p", { class: "note" }, `${found.length.value.toPrecision(4)} time steps per inference. Costs ${found.costs.name}: ${found.costs.source}.`), h("div", { class: "two" },
        plot(() => Charts.bars(parts, look, "nJ per time step"), "Energy by part", "Energy by part of the network."),
        plot(() => Charts.bars(peers, look, "mJ per inference", { type: "log" }), "Energy of peers of equal size", "Beside peers of the same widths and depth."))];
    },
    mistakes: () => {
      if (data.mistakes.missing) return [missing(data.mistakes)];
      if (data.answers.missing) return [missing(data.answers)];
      if (!data.mistakes.length) return [h("p", { class: "missing" }, "There is no mistake among the sequences read.")];
      const wide = data.mistakes.some((mistake) => mistake.drawing.kind !== "image");
      return [h("div", { class: wide ? "gallery wide" : "gallery" }, ...data.mistakes.map((mistake) => {
        const words = `sequence ${mistake.row}${data.rasters.some?.((sample) => sample.per_step) ? `, step ${mistake.step}` : ""}: ${name(mistake.answer)} (${percent(mistake.confidence)}), in truth ${name(mistake.label)}`;
        return h("figure", { class: "card" }, picture(mistake.drawing, words), h("figcaption", {}, words));
      }))];
    },
    ...(typeof Comparison === "undefined" ? {} : Comparison.sections({ h, plot, table, choice, narrow, count, look: () => look, data: () => data })),
  };

  function draw() {
    document.getElementById("about").textContent = data.about ?? `${data.task} in ${data.folder}, ${data.finished ? "finished" : "not finished"}; page of ${data.written}`;
    for (const section of document.querySelectorAll("main > section")) {
      const wanted = JSON.stringify([data[section.id], section.id === "summary" ? [data.tiles, data.details] : null, ["answers", "mistakes"].includes(section.id) ? [data.data, data.classes, data.answers] : null]);
      if (drawn.get(section.id) === wanted) continue;
      drawn.set(section.id, wanted);
      const parts = SECTIONS[section.id]();
      section.querySelector(".content").replaceChildren(...parts);
      for (const figure of section.querySelectorAll("figure")) {
        if (figure.draw) { figure.draw(); figure.wire?.(); }
      }
    }
    document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
  }

  function again() {
    look = theme();
    drawn.clear();
    draw();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  // On paper charts are light and as wide as the page.
  matchMedia("print").addEventListener("change", again);
  let width = narrow();
  addEventListener("resize", () => { if (narrow() !== width) { width = narrow(); again(); } });
  draw();

  const address = document.body.dataset.live;
  if (address) {
    const state = document.getElementById("state");
    let version = null;
    state.hidden = false;
    const poll = async () => {
      try {
        const answer = await fetch(address, { headers: version ? { "If-None-Match": version } : {}, cache: "no-store" });
        if (answer.status === 200) {
          version = answer.headers.get("ETag");
          data = await answer.json();
          draw();
        }
        state.textContent = data.finished ? "The training has finished." : `Live: ${data.status ?? "training"}`;
      } catch (error) {
        state.textContent = "The connection is lost; the page shows the last state and keeps trying.";
      }
      setTimeout(poll, 2000);
    };
    poll();
  }
})();
