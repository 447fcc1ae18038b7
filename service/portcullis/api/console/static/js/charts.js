// Charts on uPlot: one wrapper that follows size and colour scheme, and the two kinds the views need.

const uPlot = globalThis.uPlot;
const live = new Set();

/** Redraw everything when the colour scheme changes: canvases do not follow CSS by themselves. */
export function setUpCharts() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => live.forEach((chart) => chart.rebuild()));
}

/** The page's own colours, for the canvas. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  return new Proxy({}, { get: (_, name) => style.getPropertyValue(`--${name}`).trim() });
}

const TIMES = (_, values) => values.map((value) => new Date(1000 * value).toTimeString().slice(0, 8));

export const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2, 1, 2]];
const family = () => getComputedStyle(document.body).fontFamily;
export const LINE_COLOURS = ["set-1", "set-2", "set-3", "set-4", "set-5"];

/** A chart that fills its container's width. `describe` gives uPlot's options without the size. */
export class Chart {
  constructor(container, height, describe, data) {
    Object.assign(this, { container, height, describe, data, plot: null });
    this.observer = new ResizeObserver(() => this.#resize());
    this.observer.observe(container);
    live.add(this);
  }

  setData(data, resetScales = true) {
    this.data = data;
    this.plot?.setData(data, resetScales);
  }

  redraw() {
    this.plot?.redraw(false);
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    const width = this.container.clientWidth;
    if (width === 0) return;
    this.plot = new uPlot({ width, height: this.height, ...this.describe(palette()) }, this.data, this.container);
  }

  destroy() {
    this.observer.disconnect();
    this.plot?.destroy();
    live.delete(this);
  }

  #resize() {
    if (this.plot === null) this.rebuild();
    else if (this.container.clientWidth > 0) this.plot.setSize({ width: this.container.clientWidth, height: this.height });
  }
}

export function axis(colours, more = {}) {
  return {
    stroke: colours.muted,
    font: `12px ${family()}`,
    grid: { stroke: colours.line, width: 1 },
    ticks: { show: false },
    values: (_, values) => values.map((value) => String(value).replace("-", "−")),
    ...more,
  };
}

/**
 * Lines over time. `series`: [{label, colour, dash}]; `level` gives a value to mark by a dashed line; `readout` is an element
 * that shows the values under the pointer. All such charts share one pointer.
 */
export function timeChart(container, { series, height = 170, format, least = 1e-3, range, readout, level = () => NaN }) {
  const describe = (colours) => ({
    cursor: { y: false, points: { size: 6 }, sync: { key: "time" }, drag: { x: false, y: false } },
    legend: { show: false },
    padding: [10, 26, 0, 0],
    scales: { y: { range: range ?? ((_, low, high) => [0, Math.max(high * 1.1, least)]) } },
    axes: [
      axis(colours, { size: 22, space: 80, grid: { show: false }, values: TIMES }),
      axis(colours, { size: 58, space: 32, values: (_, values) => values.map(format) }),
    ],
    series: [
      {},
      ...series.map(({ label, colour, dash }) => ({
        label,
        stroke: colours[colour],
        width: 2,
        dash,
        points: { show: false },
      })),
    ],
    hooks: { draw: [(plot) => drawLevel(plot, level(), colours)], setCursor: [(plot) => read(plot, series, format, readout)] },
  });
  return new Chart(container, height, describe, [[], ...series.map(() => [])]);
}

function read(plot, series, format, readout) {
  const { idx: index } = plot.cursor;
  if (!readout) return;
  const values = series.map(({ label }, line) => [label, plot.data[line + 1][index]]).filter(([, value]) => Number.isFinite(value));
  readout.textContent = values.length === 0 ? "" : [TIMES(plot, [plot.data[0][index]])[0], ...values.map(([label, value]) => `${label} ${format(value)}`)].join("  ");
}

function drawLevel(plot, level, colours) {
  if (!Number.isFinite(level)) return;
  const { ctx, bbox } = plot;
  const y = plot.valToPos(level, "y", true);
  if (y < bbox.top || y > bbox.top + bbox.height) return;
  pen(ctx, () => dashedLine(ctx, bbox.left, y, bbox.left + bbox.width, y, colours.ink));
}

/**
 * The reference as bars with other sets as lines over it, and marks for a threshold and one score.
 * `lines`: [{shares, colour, dash, isSmooth}]; `marks()` gives {threshold, score, verdict}; all shares are per bin.
 */
export function distributionChart(container, { edges, shares, lines = [], marks = () => ({}), height = 120, compact = false }) {
  const top = Math.max(...shares);
  const highest = Math.min(2.2 * top, Math.max(top, ...lines.flatMap((line) => line.shares)));
  const ends = [edges[0], edges[edges.length - 1]];
  const describe = (colours) => ({
    cursor: { show: false },
    legend: { show: false },
    padding: [compact ? 16 : 20, 8, 0, 8],
    scales: { x: { time: false, range: () => ends }, y: { range: () => [0, highest * 1.12] } },
    axes: [
      axis(colours, { size: 22, grid: { show: false } }),
      compact ? { show: false } : axis(colours, { size: 50, values: (_, values) => values.map((v) => `${+(100 * v).toFixed(1)} %`) }),
    ],
    series: [
      {},
      { fill: colours.reference, width: 0, paths: uPlot.paths.bars({ align: 1, size: [1, Infinity], gap: compact || container.clientWidth < 600 ? 0 : 1 }), points: { show: false } },
      ...lines.map(({ colour, dash, isSmooth }) => ({
        stroke: colours[colour],
        width: 2,
        dash,
        paths: isSmooth ? uPlot.paths.linear() : uPlot.paths.stepped({ align: 1 }),
        points: { show: false },
      })),
    ],
    hooks: {
      drawClear: [(plot) => drawRejected(plot, marks(), colours)],
      draw: [(plot) => drawMarks(plot, marks(), colours)],
    },
  });
  return new Chart(container, height, describe, binData(edges, shares, lines));
}

/** uPlot's columns: each bin at its lower edge, and the last edge to end the steps. */
export function binData(edges, shares, lines) {
  return [edges, [...shares, null], ...lines.map((line) => [...line.shares, line.shares[line.shares.length - 1]])];
}

function drawRejected(plot, { threshold }, colours) {
  if (threshold === undefined || threshold === null) return;
  const { ctx, bbox } = plot;
  const x = clampedX(plot, threshold);
  pen(ctx, () => {
    ctx.fillStyle = colours["reject-wash"];
    ctx.fillRect(bbox.left, bbox.top, x - bbox.left, bbox.height);
  });
}

function drawMarks(plot, { threshold, score, verdict }, colours) {
  const { ctx, bbox } = plot;
  const bottom = bbox.top + bbox.height;
  pen(ctx, () => {
    if (threshold !== undefined && threshold !== null) {
      const x = clampedX(plot, threshold);
      dashedLine(ctx, x, bbox.top, x, bottom, colours.ink);
      const gap = 5 * devicePixelRatio;
      if (x - bbox.left > 60 * devicePixelRatio) label(ctx, "reject", x - gap, bbox.top - gap, "right", colours);
      if (bbox.left + bbox.width - x > 60 * devicePixelRatio) label(ctx, "accept", x + gap, bbox.top - gap, "left", colours);
    }
    if (Number.isFinite(score)) drawScore(plot, score, colours[verdict]);
  });
}

/** The image's own score: a line with a head, or an arrow at the edge where it lies beyond the scale. */
function drawScore(plot, score, colour) {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales.x;
  const size = 6 * devicePixelRatio;
  const x = clampedX(plot, score);
  const bottom = bbox.top + bbox.height;
  ctx.fillStyle = ctx.strokeStyle = colour;
  ctx.lineWidth = 2.5 * devicePixelRatio;
  ctx.beginPath();
  if (score >= min && score <= max) {
    ctx.moveTo(x, bbox.top + size);
    ctx.lineTo(x, bottom);
    ctx.stroke();
    triangle(ctx, [x - size, bbox.top], [x + size, bbox.top], [x, bbox.top + 1.6 * size]);
  } else {
    const towards = score < min ? 1 : -1;
    const y = bottom - 2.2 * size;
    triangle(ctx, [x, y], [x + towards * 1.8 * size, y - size], [x + towards * 1.8 * size, y + size]);
  }
}

function triangle(ctx, ...corners) {
  ctx.beginPath();
  corners.forEach(([x, y], index) => (index ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.fill();
}

function clampedX(plot, value) {
  const { left, width } = plot.bbox;
  return Math.min(left + width, Math.max(left, plot.valToPos(value, "x", true)));
}

function dashedLine(ctx, x1, y1, x2, y2, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([5 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
  ctx.setLineDash([]);
}

function label(ctx, text, x, y, align, colours) {
  ctx.font = `${11 * devicePixelRatio}px ${family()}`;
  ctx.textAlign = align;
  ctx.textBaseline = "bottom";
  ctx.fillStyle = colours.muted;
  ctx.fillText(text, x, y);
}

function pen(ctx, draw) {
  ctx.save();
  draw();
  ctx.restore();
}
