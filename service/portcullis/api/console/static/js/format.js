// Numbers and shares as people read them.

const MINUS = "−";
const NOTHING = "–";
const THIN = "\u202f";

/** A score or other plain number, with a real minus sign. */
export function number(value, digits = 2) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  return value.toFixed(digits).replace("-", MINUS);
}

/** A score with enough digits to tell neighbours on this scale apart. */
export function score(value, range = 10) {
  return number(value, Math.min(6, Math.max(2, 3 - Math.floor(Math.log10(range || 1)))));
}

/** 0.0532 → "5.3 %"; never rounds something to nothing or nearly all to all. */
export function percent(share, digits = 1) {
  if (share === null || share === undefined || !Number.isFinite(share)) return NOTHING;
  const least = 10 ** -digits;
  if (share > 0 && share * 100 < least / 2) return `<${THIN}${least}${THIN}%`;
  if (share < 1 && share * 100 > 100 - least / 2) return `>${THIN}${(100 - least).toFixed(digits)}${THIN}%`;
  return `${(100 * share).toFixed(digits)}${THIN}%`;
}

/** A difference of two shares in percentage points, with its sign. */
export function points(difference, digits = 1) {
  const text = Math.abs(100 * difference).toFixed(digits);
  if (Number(text) === 0) return "±0";
  return `${difference > 0 ? "+" : MINUS}${text} points`;
}

export function count(value) {
  return Math.round(value).toLocaleString("en-GB");
}

/** Seconds as ms or s. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return NOTHING;
  if (seconds < 0.00995) return `${(1000 * seconds).toFixed(1)}${THIN}ms`;
  return seconds < 1 ? `${(1000 * seconds).toFixed(0)}${THIN}ms` : `${seconds.toFixed(2)}${THIN}s`;
}

export function date(text) {
  const moment = new Date(text);
  return Number.isNaN(moment.valueOf()) ? text : moment.toISOString().slice(0, 16).replace("T", " ") + " UTC";
}

/** The p-value in words: where an image stands among those that the model knows, or knows by the same answer. */
export function inWords(pValue, numImages, isByClass = false) {
  const known = isByClass ? "the images that it answers so" : "the images it knows";
  if (!isByClass && pValue <= 1.5 / (numImages + 1)) return `Stranger than all ${count(numImages)} images it was calibrated on`;
  if (pValue < 0.5) return `Stranger than ${percent(1 - pValue)} of ${known}`;
  return `More familiar than ${percent(pValue)} of ${known}`;
}

/** The share of familiar images that a gate rejects: "at most" where an operating point promises it, else as counted. */
export function rejectedShare(gate) {
  const isPromised = gate.operating_point && !gate.right;
  return `${isPromised ? "at most" : "about"} ${percent(gate.expected_rejected_share)}`;
}
