// Reads Prometheus text: what /metrics says, as samples; and rates and quantiles between two readings.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Samples by metric name: Map(name → [{labels, value}]). */
export function parseMetrics(text) {
  const samples = new Map();
  for (const line of text.split("\n")) {
    const match = line[0] === "#" ? null : line.match(LINE);
    if (!match) continue;
    const labels = Object.fromEntries([...(match[2] ?? "").matchAll(LABEL)].map(([, name, value]) => [name, value]));
    if (!samples.has(match[1])) samples.set(match[1], []);
    samples.get(match[1]).push({ labels, value: Number(match[3]) });
  }
  return samples;
}

/** Sum of the samples whose labels include `wanted`. */
export function total(samples, name, wanted = {}) {
  return chosen(samples, name, wanted).reduce((sum, sample) => sum + sample.value, 0);
}

/** A quantile of what a histogram observed between two readings, by a straight line inside the bucket; NaN: nothing. */
export function quantileBetween(earlier, later, name, wanted, quantile) {
  const before = new Map(chosen(earlier, `${name}_bucket`, wanted).map(({ labels, value }) => [labels.le, value]));
  const buckets = chosen(later, `${name}_bucket`, wanted)
    .map(({ labels, value }) => ({ edge: labels.le === "+Inf" ? Infinity : Number(labels.le), count: value - (before.get(labels.le) ?? 0) }))
    .sort((a, b) => a.edge - b.edge);
  const all = buckets.at(-1)?.count ?? 0;
  if (!(all > 0)) return NaN;
  const index = buckets.findIndex((bucket) => bucket.count >= quantile * all);
  const lower = index > 0 ? buckets[index - 1] : { edge: 0, count: 0 };
  if (buckets[index].edge === Infinity) return lower.edge;
  const inside = buckets[index].count - lower.count;
  return lower.edge + (buckets[index].edge - lower.edge) * (inside > 0 ? (quantile * all - lower.count) / inside : 1);
}

function chosen(samples, name, wanted) {
  return (samples.get(name) ?? []).filter(({ labels }) => Object.entries(wanted).every(([key, value]) => labels[key] === value));
}
