// Reads what the operator shows, again whenever something has changed.

const api = "api/v1/";
const pause = 1000; // milliseconds between two readings at least
const slow = 5000; // milliseconds between two readings without a stream of events

let token = sessionStorage.getItem("token") || "";

export class Refused extends Error {}

async function get(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(api + path, { headers });
  const body = await answer.json();
  if (answer.status === 401) throw new Refused(body.message);
  if (answer.status === 403) return null; // the caller may not read this part
  if (!answer.ok) throw new Error(body.message);
  return body;
}

export const readGang = (namespace, name) => get(`gangs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);

export function useToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

// Calls `show(state)` with each new state, and `fail(error)` if it can't be read. Returns a function that reads again at once.
export function follow(show, fail) {
  let reading = false;
  let again = false;

  async function read() {
    if (reading) {
      again = true;
      return;
    }
    reading = true;
    try {
      const [status, gangs, nodes] = await Promise.all([get("status"), get("gangs"), get("nodes")]);
      show({ status, gangs: gangs || { gangs: [], hidden: 0 }, nodes: nodes || { nodes: [], groupedBy: "" } });
    } catch (error) {
      fail(error);
    }
    setTimeout(() => {
      reading = false;
      if (again) {
        again = false;
        read();
      }
    }, pause);
  }

  read();
  if (token) {
    setInterval(read, slow); // a stream of events can't carry a token
  } else {
    const events = new EventSource(`${api}events`);
    events.addEventListener("changed", read);
    events.onerror = () => setTimeout(read, slow);
  }
  return read;
}
