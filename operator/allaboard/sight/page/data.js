// Reads what the operator shows, again whenever something has changed.

import { keyOf } from "./words.js";

const api = "api/v1/";
const pause = 1000; // milliseconds between two readings at least
const slow = 5000; // milliseconds between two readings without a stream of events, and between two readings of the status

let token = sessionStorage.getItem("token") || "";

export class Refused extends Error {}

async function get(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(api + path, { headers }).catch(() => {
    throw new Error("The operator doesn't answer");
  });
  const body = await answer.json();
  if (answer.status === 401) throw new Refused(body.message);
  if (answer.status === 403 || answer.status === 404) return null; // the caller may not read this part, or it is gone
  if (!answer.ok) throw new Error(body.message);
  return body;
}

export const readGang = (namespace, name) => get(`gangs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`);

export function useToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

// Rows that haven't changed stay the same objects, and so does a list of such rows: nothing is drawn again for them.
function keeper(nameOf, textOf) {
  let known = new Map();
  let list = [];
  return (rows) => {
    const next = new Map();
    for (const row of rows) {
      const name = nameOf(row);
      const text = textOf(row);
      const before = known.get(name);
      next.set(name, before && before.text === text ? before : { row, text });
    }
    known = next;
    const newest = [...next.values()].map((each) => each.row);
    if (newest.length !== list.length || newest.some((row, place) => row !== list[place])) list = newest;
    return list;
  };
}

function textOfNode(node) {
  let text = `${node.domain}|${node.isReady}|${node.isCordoned}|${node.gpus}|${node.gpusFree}|${node.gpusStranded}|${node.free.cpu}|${node.allocatable.cpu}|${node.free.memory}`;
  for (const share of node.shares) text += `|${share.gang}|${share.pods}|${share.gpus}|${share.requests.cpu}`;
  return text;
}

// Calls `show(state)` with each new state, and `fail(error)` if it can't be read.
export function follow(show, fail) {
  const keepGangs = keeper(keyOf, JSON.stringify);
  const keepNodes = keeper((node) => node.name, textOfNode);
  let state = null;
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
      performance.mark("read");
      state = {
        status,
        readAt: performance.now(),
        version: (state ? state.version : 0) + 1,
        gangs: gangs ? keepGangs(gangs.gangs) : [],
        hidden: gangs ? gangs.hidden : 0,
        nodes: nodes ? keepNodes(nodes.nodes) : [],
        groupedBy: nodes ? nodes.groupedBy : "",
      };
      show(state);
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

  // Without changes only the status is read: that the operator answers, and how old its data are.
  async function readStatus() {
    if (!state || reading) return;
    try {
      state = { ...state, status: await get("status"), readAt: performance.now() };
      show(state);
    } catch (error) {
      fail(error);
    }
  }

  read();
  if (token) {
    setInterval(read, slow); // a stream of events can't carry a token
  } else {
    const events = new EventSource(`${api}events`);
    events.addEventListener("changed", read);
    setInterval(() => (state ? readStatus() : read()), slow);
  }
}
