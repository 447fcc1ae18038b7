// The recent past of one version as columns over time: drift as the service measures it, rates from /metrics.

import { parseMetrics, quantileBetween, total } from "./prometheus.js";

const KEPT = 600;
const RATE_SECONDS = 10;
const NAMES = ["time", "accepted", "rejected", "rejectRatio", "evidence", "fleetEvidence", "psi", "p50", "p99", "queue"];

export class Readings {
  #earlier = [];

  constructor(model, version) {
    this.labels = { model, version: String(version) };
    this.columns = Object.fromEntries(NAMES.map((name) => [name, []]));
    this.latest = { accepted: 0, rejected: 0, p50: NaN, p99: NaN, queue: 0, queueCapacity: 0, numAnswered: 0 };
    this.numAnswered = 0;
  }

  /** One reading of both routes; rates are over the last few seconds, so that they are calm. */
  add(drift, metricsText, now = Date.now() / 1000) {
    const metrics = parseMetrics(metricsText);
    this.#earlier.push({ time: now, metrics });
    while (this.#earlier.length > 2 && this.#earlier[1].time <= now - RATE_SECONDS) this.#earlier.shift();
    if (this.#restarted(metrics)) this.#earlier = [{ time: now, metrics }];
    this.latest = this.#rates(this.#earlier[0], now, metrics);
    this.numAnswered = this.latest.numAnswered;
    if (this.columns.time.length === 0) this.#prefill(drift.history ?? []);
    this.#append({ ...this.latest, time: now, rejectRatio: drift.reject_ratio, evidence: drift.evidence_log10, fleetEvidence: drift.fleet?.evidence_log10, psi: drift.psi });
  }

  /** A counter that fell belongs to another life of the service. */
  #restarted(metrics) {
    return this.#answered(metrics) < this.#answered(this.#earlier[0].metrics);
  }

  #rates(earlier, now, metrics) {
    const seconds = now - earlier.time;
    const rate = (verdict) => {
      const wanted = { ...this.labels, verdict };
      const grown = total(metrics, "portcullis_predictions_total", wanted) - total(earlier.metrics, "portcullis_predictions_total", wanted);
      return seconds > 0 ? grown / seconds : 0;
    };
    const quantile = (share) => quantileBetween(earlier.metrics, metrics, "portcullis_stage_seconds", { stage: "total" }, share);
    return {
      accepted: rate("accept"),
      rejected: rate("reject"),
      p50: quantile(0.5),
      p99: quantile(0.99),
      queue: total(metrics, "portcullis_queue_depth", this.labels),
      queueCapacity: total(metrics, "portcullis_queue_capacity", this.labels),
      numAnswered: this.#answered(metrics),
    };
  }

  #answered(metrics) {
    return total(metrics, "portcullis_predictions_total", this.labels);
  }

  #prefill(history) {
    history.forEach((point, index) => {
      const { time, reject_ratio: rejectRatio, evidence_log10: evidence, psi } = point;
      this.#append({ time, rejectRatio, evidence, psi, ...ratesBetween(history[index - 1], point) });
    });
  }

  #append(row) {
    for (const name of NAMES) {
      const value = row[name];
      this.columns[name].push(Number.isFinite(value) ? value : null);
      if (this.columns[name].length > KEPT) this.columns[name].shift();
    }
  }
}

function ratesBetween(earlier, later) {
  if (!earlier || later.time <= earlier.time || later.num_images < earlier.num_images) return {};
  const rejected = (later.num_rejected - earlier.num_rejected) / (later.time - earlier.time);
  return { rejected, accepted: (later.num_images - earlier.num_images) / (later.time - earlier.time) - rejected };
}
