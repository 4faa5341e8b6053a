// Words and colours for what is shown.

const units = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];

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
  return today ? time : `${then.toLocaleDateString()} ${time}`;
}

export const number = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(1));

export const keyOf = (gang) => `${gang.namespace}/${gang.name}`;

// Equal names get equal colours on every page; the colour is never the only sign.
export function hue(name) {
  let hash = 2166136261;
  for (const letter of name) hash = Math.imul(hash ^ letter.codePointAt(0), 16777619);
  return ((hash >>> 0) * 137) % 360;
}

export const colour = (name) => `hsl(${hue(name)} 62% 52%)`;

// One sentence that says why a gang waits, or that it runs.
export function sentence(gang) {
  const prefix = `podgroup ${keyOf(gang)}: `; // the row names the gang already
  if (gang.message) return gang.message.startsWith(prefix) ? gang.message.slice(prefix.length) : gang.message;
  return gang.position ? "not attempted yet" : `${gang.members.bound} members have a node`;
}
