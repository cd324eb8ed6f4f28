// The neurons of the explorer, one channel each, in double precision. Equations: resofire.ops.prf, resofire.ops.lif and
// resofire.nn.DRF, against which this file is tested. Potentials are those that are compared with the threshold.
"use strict";
const Neurons = (() => {
  const coefficients = (delta, theta, tau) => {
    const decay = Math.exp(-delta / tau);
    return { re: decay * Math.cos(delta * theta), im: decay * Math.sin(delta * theta) };
  };

  // A sum of resonators: potentials and spikes; one resonator with a mix of 1 is the PRF.
  function resonators(current, { delta, thetas, tau, mix, threshold, reset }) {
    const phi = thetas.map((theta) => coefficients(delta, theta, tau));
    const u = thetas.map(() => 0), r = thetas.map(() => 0), potential = [], spikes = [];
    for (const input of current) {
      let sum = 0;
      phi.forEach(({ re, im }, i) => {
        const before = u[i];
        u[i] = re * before - im * r[i] + delta * input;
        r[i] = im * before + re * r[i];
        sum += mix[i] * u[i];
      });
      const fired = sum >= threshold ? 1 : 0;
      potential.push(sum);
      spikes.push(fired);
      if (reset === "soft" && thetas.length === 1) u[0] -= threshold * fired;
    }
    return { potential, spikes };
  }

  const prf = (current, { theta, ...rest }) => resonators(current, { ...rest, thetas: [theta], mix: [1] });

  function lif(current, { beta, gain, threshold, reset }) {
    const potential = [], spikes = [];
    let v = 0;
    for (const input of current) {
      const u = beta * v + gain * input, fired = u >= threshold ? 1 : 0;
      potential.push(u);
      spikes.push(fired);
      v = reset === "soft" ? u - threshold * fired : u;
    }
    return { potential, spikes };
  }

  // The potential after one input of 1, without threshold.
  function kernel(steps, { delta, thetas, tau, mix }) {
    const values = [];
    for (let k = 0; k < steps; k += 1) {
      let sum = 0;
      thetas.forEach((theta, i) => { sum += mix[i] * delta * Math.exp(-k * delta / tau) * Math.cos(k * delta * theta); });
      values.push(sum);
    }
    return values;
  }

  // The size of the potential that a wave of size 1 and omega radians per step leads to: |Σ_k kernel_k e^{-iωk}|.
  function response(omegas, { delta, thetas, tau, mix }) {
    return omegas.map((omega) => {
      let real = 0, imaginary = 0;
      thetas.forEach((theta, i) => {
        for (const sign of [1, -1]) {
          // Half of Δ / (1 - φ e^{-iω}) and half of the same with the conjugate of φ.
          const size = Math.exp(-delta / tau), angle = sign * delta * theta - omega;
          const a = 1 - size * Math.cos(angle), b = -size * Math.sin(angle), square = a * a + b * b;
          real += mix[i] * delta / 2 * a / square;
          imaginary -= mix[i] * delta / 2 * b / square;
        }
      });
      return Math.hypot(real, imaginary);
    });
  }

  // Frequencies of several resonators: the middles of equal bands from 0 to 2θ, mixed to the variance of one.
  const bands = (theta, count) => ({
    thetas: Array.from({ length: count }, (_, i) => 2 * theta * (i + 0.5) / count), mix: new Array(count).fill(1 / Math.sqrt(count)),
  });

  // Mulberry32: the same noise for the same seed in every browser.
  function noise(steps, seed) {
    let state = seed >>> 0;
    const uniform = () => {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    return Array.from({ length: steps }, () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
  }

  function input(kind, steps, { amplitude, first, second, shift, seed, row, pixels }) {
    const values = new Array(steps).fill(0), last = Math.max(1, steps - 1);
    if (kind === "step") for (let t = first; t < second; t += 1) values[t] = 1;
    if (kind === "pulses") { values[Math.min(last, first + shift)] += 1; values[second] += 1; }
    // From 0 to half a turn per step, the frequency rising evenly.
    if (kind === "chirp") values.forEach((_, t) => { values[t] = Math.cos(Math.PI * t * t / (2 * last)); });
    if (kind === "noise") noise(steps, seed).forEach((value, t) => { values[t] = value; });
    if (kind === "digit") values.forEach((_, t) => { values[t] = (pixels[28 * row + t] ?? 0) / 255; });
    return values.map((value) => amplitude * value);
  }

  return { coefficients, resonators, prf, lif, kernel, response, bands, noise, input };
})();
if (typeof module !== "undefined") module.exports = Neurons;
