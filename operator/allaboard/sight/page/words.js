// Words and colours for what is shown.

const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

export const GPU = "nvidia.com/gpu";

export function duration(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  for (let place = 0; place < units.length; place++) {
    const [size, unit] = units[place];
    if (left < size) continue;
    const next = units[place + 1];
    const more = next ? Math.floor((left % size) / next[0]) : 0;
    return `${Math.floor(left / size)}${unit}${more ? more + next[1] : ""}`;
  }
  return "0s";
}

export function moment(seconds) {
  const then = new Date(seconds * 1000);
  const today = new Date().toDateString() === then.toDateString();
  const time = then.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return today ? time : `${then.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}`;
}

export const number = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(1));

export const count = (amount, one, many = `${one}s`) => `${number(amount)} ${amount === 1 ? one : many}`;

export const keyOf = (gang) => `${gang.namespace}/${gang.name}`;

// A gang and a pod that is in no gang may have the same name.
export const rowKeyOf = (gang) => `${gang.kind} ${keyOf(gang)}`;

// Characters that change the direction of text, or that can't be seen, could make one name look like another: they are shown as a sign.
export const plain = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, "\ufffd");

export function amount(resource, value) {
  if (resource === GPU) return count(value, "GPU");
  if (resource === "cpu") return `${number(value)} cpu`;
  if (resource === "pods") return count(value, "pod slot");
  if (resource === "memory" || resource === "ephemeral-storage") {
    const gibibytes = value / 1024 ** 3;
    return `${gibibytes >= 10 ? Math.round(gibibytes) : gibibytes.toFixed(1)} GiB of ${resource === "memory" ? "memory" : "storage"}`;
  }
  return `${number(value)} ${plain(resource)}`;
}

// GPUs first, then the others by name.
const order = (resource) => (resource === GPU ? "" : resource);

export const amounts = (found) =>
  Object.entries(found)
    .filter(([, value]) => value > 0)
    .sort(([one], [other]) => (order(one) < order(other) ? -1 : 1))
    .map(([resource, value]) => amount(resource, value))
    .join(", ");

// Equal names get equal colours on every page; the colour is never the only sign. Equal lightness keeps each colour apart from the ground.
export function colour(name, style) {
  let found = style.colours.get(name);
  if (!found) {
    if (style.colours.size > 5000) style.colours.clear(); // a page may be open for weeks
    let hash = 2166136261;
    for (const letter of name) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619);
    hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b); // names that differ in one letter get unlike colours
    hash = (hash ^ (hash >>> 13)) >>> 0;
    found = `oklch(${style.lightness + (Math.floor(hash / 24) % 3) * 0.08} 0.125 ${(hash % 24) * 15})`;
    style.colours.set(name, found);
  }
  return found;
}

// The row names the gang already.
export function messageOf(gang, message) {
  const prefix = `podgroup ${keyOf(gang)}: `;
  return plain(message.startsWith(prefix) ? message.slice(prefix.length) : message);
}

// One sentence that says why a gang waits, or that it runs.
export function sentence(gang) {
  if (gang.message) return messageOf(gang, gang.message);
  if (gang.position) return gang.kind === "Pod" ? "The pod's condition PodScheduled has the reason." : "not attempted yet";
  return `${count(gang.members.bound, "member has", "members have")} a node`;
}

// One word for the state of a gang.
export const stateOf = (gang) => plain(gang.state || (!gang.position ? "" : gang.kind === "Pod" ? "Waiting" : "New"));
