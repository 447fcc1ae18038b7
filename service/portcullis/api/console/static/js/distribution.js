// Arithmetic on score distributions: pure, knows no page and no network.

const MAX_BINS_BEYOND = 60;

/** Share of a set below `score`, from its evenly spaced quantiles. */
export function shareBelow(quantiles, score) {
  const last = quantiles.length - 1;
  if (last < 1) return NaN;
  if (score <= quantiles[0]) return 0;
  if (score > quantiles[last]) return 1;
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (quantiles[middle] < score) low = middle;
    else high = middle;
  }
  const gap = quantiles[high] - quantiles[low];
  return (low + (gap > 0 ? (score - quantiles[low]) / gap : 1)) / last;
}

/** The score below which the given share lies. */
export function scoreAt(quantiles, share) {
  const position = Math.min(1, Math.max(0, share)) * (quantiles.length - 1);
  const low = Math.floor(position);
  const high = Math.min(low + 1, quantiles.length - 1);
  return quantiles[low] + (position - low) * (quantiles[high] - quantiles[low]);
}

/** Share of a set in each bin. */
export function sharesInBins(quantiles, edges) {
  const below = edges.map((edge) => shareBelow(quantiles, edge));
  return below.slice(1).map((share, index) => share - below[index]);
}

/** Shares averaged over neighbouring bins: a set known by its quantiles only has none of the finer detail. */
export function smoothed(shares) {
  const weights = [1, 2, 3, 2, 1];
  return shares.map((_, index) => {
    let sum = 0;
    weights.forEach((weight, offset) => (sum += weight * (shares[index + offset - 2] ?? 0)));
    return sum / 9;
  });
}

/** The reference's bins, with more of the same width on either side where other sets reach beyond. */
export function bins(reference, otherQuantiles = []) {
  const { edges, counts } = reference.histogram;
  const width = (edges[edges.length - 1] - edges[0]) / counts.length;
  const lows = otherQuantiles.map((quantiles) => scoreAt(quantiles, 0.02));
  const highs = otherQuantiles.map((quantiles) => scoreAt(quantiles, 0.98));
  const before = binsBeyond(edges[0] - Math.min(edges[0], ...lows), width);
  const after = binsBeyond(Math.max(edges[edges.length - 1], ...highs) - edges[edges.length - 1], width);
  const start = edges[0] - before * width;
  const total = before + counts.length + after;
  return {
    edges: Array.from({ length: total + 1 }, (_, index) => start + index * width),
    shares: [...Array(before).fill(0), ...counts.map((n) => n / reference.num_images), ...Array(after).fill(0)],
  };
}

function binsBeyond(distance, width) {
  return Math.min(MAX_BINS_BEYOND, Math.ceil(distance / width) + 1);
}

/** What the drift report says of the window, as points (score, share below), rising. */
export function windowSteps(drift, reference) {
  const points = Object.entries(drift.score_quantiles ?? {}).map(([share, score]) => [score, Number(share)]);
  let below = 0;
  for (const [index, share] of (drift.p_value_shares ?? []).entries()) {
    below += share;
    const edge = drift.p_value_buckets[index];
    if (edge < 1) points.push([scoreAt(reference.quantiles, edge), below]);
  }
  points.sort((a, b) => a[0] - b[0]);
  for (let index = 1; index < points.length; index += 1) points[index][1] = Math.max(points[index][1], points[index - 1][1]);
  return points;
}

/** Share in each bin of a distribution known at some points only; straight lines between them. */
export function sharesFromSteps(points, edges) {
  if (points.length === 0) return edges.slice(1).map(() => 0);
  const low = [edges[0] < points[0][0] ? edges[0] : points[0][0] - 1e-9, 0];
  const last = points[points.length - 1];
  const high = [Math.max(edges[edges.length - 1], last[0] + 1e-9), 1];
  const all = [low, ...points, high];
  const below = edges.map((edge) => {
    const index = all.findIndex(([score]) => score >= edge);
    if (index <= 0) return index === 0 ? 0 : 1;
    const [[score0, share0], [score1, share1]] = [all[index - 1], all[index]];
    return share0 + (score1 > score0 ? (edge - score0) / (score1 - score0) : 1) * (share1 - share0);
  });
  return below.slice(1).map((share, index) => share - below[index]);
}
