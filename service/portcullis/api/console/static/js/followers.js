// Which workers have not followed a change yet: the service answers 202 then, and names them.

/** A sentence to put behind what was changed. */
export function followersText({ behind = [] }) {
  if (behind.length === 0) return "Every worker has followed.";
  const who = ({ instance, worker }) => (worker === null ? "nobody knows whom" : `worker ${worker} of ${instance}`);
  const names = behind.map((one) => `${who(one)} (${one.reason})`).join(", ");
  return `Not followed yet by ${names}; each goes on trying by itself.`;
}
