// The sections of a page that compares runs.
"use strict";
const Comparison = (() => {
  const { text, brief, percent, base, line, SYMBOLS } = Charts;
  const dash = "–";
  // Colours come back after eight runs, then with other symbols.
  const symbol = (number) => SYMBOLS[(number + Math.floor(number / 8)) % 8];

  function scores(runs, look) {
    const known = runs.filter((run) => run.accuracy);
    const data = [{
      type: "scatter", mode: "markers", y: known.map((_, i) => i), x: known.map((run) => 100 * run.accuracy.share),
      error_x: { type: "data", symmetric: false, array: known.map((run) => 100 * (run.accuracy.high - run.accuracy.share)), arrayminus: known.map((run) => 100 * (run.accuracy.share - run.accuracy.low)), color: look.soft },
      marker: { size: 11, color: known.map((run) => look.colours[runs.indexOf(run) % 8]), symbol: known.map((run) => symbol(runs.indexOf(run))) },
      customdata: known.map((run) => `${text(run.name)}: ${percent(run.accuracy.share, 2)} of ${run.accuracy.count.toLocaleString("en")} (${text(run.accuracy.split)})`), hovertemplate: "%{customdata}<extra></extra>",
    }];
    return { data, layout: base(look, 110 + 34 * known.length, { margin: { l: 60, r: 20, t: 10, b: 45 }, xaxis: { title: { text: "accuracy, %" } },
      yaxis: { tickvals: known.map((_, i) => i), ticktext: known.map((run) => brief(run.name, 18)), range: [known.length - 0.4, -0.6] } }) };
  }

  function progress(runs, look, column) {
    const data = runs.map((run, number) => ({ run, number })).filter(({ run }) => run.curve).map(({ run, number }) => line(look, number, run.name,
      column === "minutes" ? run.curve.seconds.map((value) => value === null ? null : value / 60) : run.curve[column], run.curve.accuracy.map((value) => value === null ? null : 100 * value),
      { mode: run.curve.step.length < 60 ? "lines+markers" : "lines", marker: { symbol: symbol(number), size: 7 }, hovertemplate: `${column} %{x:.3g}: %{y:.2f} %<extra>${text(run.name)}</extra>` }));
    return { data, layout: base(look, 430, { xaxis: { title: { text: column === "minutes" ? "minutes of training" : column } }, yaxis: { title: { text: "accuracy on the selecting split, %" } } }) };
  }

  function tradeoff(runs, look, column) {
    const known = runs.map((run, number) => ({ run, number })).filter(({ run }) => run.accuracy && run[column]);
    const titles = { energy: "energy per inference, mJ", parameters: "parameters", seconds: "training time, s" };
    const data = known.map(({ run, number }) => ({ type: "scatter", mode: "markers", name: brief(run.name), x: [run[column]], y: [100 * run.accuracy.share],
      marker: { size: 13, color: look.colours[number % 8], symbol: symbol(number) }, hovertemplate: `%{x:.4g}, %{y:.2f} %<extra>${text(run.name)}</extra>` }));
    return { data, layout: base(look, 400, { xaxis: { title: { text: titles[column] }, type: "log" }, yaxis: { title: { text: "accuracy, %" } }, showlegend: true }) };
  }

  function layers(runs, look) {
    const data = [];
    runs.forEach((run, number) => {
      for (const kind of new Set(run.layers.map((layer) => layer.kind))) {
        const own = run.layers.filter((layer) => layer.kind === kind), first = kind === run.layers[0].kind;
        data.push(line(look, number, `${[...run.name].slice(0, 16).join("")}, ${kind}`, own.map((layer) => layer.block), own.map((layer) => 100 * layer.rate), {
          mode: "lines+markers", line: { color: look.colours[number % 8], dash: first ? "solid" : "dash", width: 2 }, marker: { symbol: symbol(number) + (first ? "" : "-open"), size: 8 },
          hovertemplate: `block %{x}: %{y:.2f} %<extra>${text(run.name)}, ${text(kind)}</extra>` }));
      }
    });
    const blocks = Math.max(1, ...runs.flatMap((run) => run.layers.map((layer) => layer.block)));
    return { data, layout: base(look, 450, { xaxis: { title: { text: "block" }, dtick: blocks > 20 ? undefined : 1 }, yaxis: { title: { text: "fire rate, %" }, rangemode: "tozero" } }) };
  }

  function sections({ h, plot, table, choice, count, look, data }) {
    const none = (words) => [h("p", { class: "missing" }, words)];
    const chosen = (name, label, values, draw, title) => {
      let value;
      const figure = plot(() => draw(value), title, null);
      const [picker, select] = choice(name, label, values, (next) => { value = next; figure.draw(); });
      value = select.value;
      return [picker, figure];
    };
    return {
      runs: () => {
        const rows = data().runs.map((run) => [run.name,
          run.accuracy ? `${percent(run.accuracy.share, 2)} (${percent(run.accuracy.low, 2)} to ${percent(run.accuracy.high, 2)})${run.accuracy.split === "test" ? "" : `, ${run.accuracy.split}`}` : run.finished ? dash : "not finished",
          run.parameters ? count(run.parameters) : dash, percent(run.rate), run.energy ? `${run.energy.toPrecision(3)}\u00a0mJ` : dash, run.time ?? dash, String(run.seed), run.task, run.network ?? dash]);
        const notes = data().runs.filter((run) => run.note).map((run) => h("p", { class: "note" }, `${run.name}: ${run.note}`));
        return [table(["run", "accuracy (95 % interval)", "parameters", "fire rate", "energy", "training", "seed", "task", "network"], rows, { label: "Runs" }), ...notes];
      },
      scores: () => data().runs.some((run) => run.accuracy) ? [plot(() => scores(data().runs, look()), "Accuracy of each run with its interval", null)] : none("No run has finished."),
      progress: () => data().runs.some((run) => run.curve) ? chosen("progress", "By", [["epoch", "epoch"], ["step", "step"], ["minutes", "time"]], (value) => progress(data().runs, look(), value), "Accuracy during training") : none("No validation has been recorded."),
      tradeoff: () => data().runs.some((run) => run.accuracy) ? chosen("tradeoff", "Against", [["energy", "energy"], ["parameters", "parameters"], ["seconds", "training time"]], (value) => tradeoff(data().runs, look(), value), "Accuracy against cost") : none("No run has finished."),
      layers: () => data().runs.some((run) => run.layers.length) ? [plot(() => layers(data().runs, look()), "Fire rate of each layer", null)] : none("No fire rates have been recorded."),
    };
  }

  return { sections };
})();
