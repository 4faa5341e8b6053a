// A worker that reads what the operator shows, again whenever something has changed. Thousands of rows are so compared beside the thread that
// draws the page: the first answers are passed on as they are, and then only rows that have changed. They are passed on as text, which is
// parsed faster than objects are copied.

import { Refused, getText } from "./request.js";
import { rowKeyOf } from "./words.js";

const base = "../api/v1/"; // from the place of this file
const pause = 1000; // milliseconds between two readings at least
const slow = 5000; // milliseconds between two readings without a stream of events, and between two readings of the status

// Returns a function that takes all rows, and returns {rows, names}: those that have changed, and the names of all in their order, which is
// null if the same rows are there as before. Nothing is drawn again for rows that haven't changed.
function changes(nameOf) {
  let known = new Map();
  return (all) => {
    const next = new Map();
    const rows = [];
    let isSame = all.length === known.size;
    for (const row of all) {
      const name = nameOf(row);
      const text = JSON.stringify(row);
      if (known.get(name) !== text) rows.push(row);
      isSame = isSame && known.has(name);
      next.set(name, text);
    }
    known = next;
    return { rows, names: isSame ? null : [...next.keys()] };
  };
}

const gangsChanged = changes(rowKeyOf);
const nodesChanged = changes((node) => node.name);
let token = "";
let isReading = false;
let isAsked = false;
let hasRead = false;

function report(error) {
  postMessage({ error: error.message, isRefused: error instanceof Refused });
}

async function read() {
  if (isReading) {
    isAsked = true;
    return;
  }
  isReading = true;
  try {
    const [status, gangsText, nodesText] = await Promise.all(["status", "gangs", "nodes"].map((path) => getText(base, path, token)));
    if (!hasRead) postMessage({ status, first: { gangs: gangsText, nodes: nodesText } });
    const gangs = JSON.parse(gangsText) || { gangs: [], hidden: 0 };
    const nodes = JSON.parse(nodesText) || { nodes: [], groupedBy: "" };
    const change = {
      gangs: gangsChanged(gangs.gangs),
      hidden: gangs.hidden,
      nodes: nodesChanged(nodes.nodes),
      groupedBy: nodes.groupedBy,
    };
    if (hasRead) postMessage({ status, change: JSON.stringify(change) });
    hasRead = true;
  } catch (error) {
    report(error);
  }
  setTimeout(() => {
    isReading = false;
    if (isAsked) {
      isAsked = false;
      read();
    }
  }, pause);
}

// Without changes only the status is read: that the operator answers, and how old its data are.
async function readStatus() {
  if (!hasRead) return read();
  if (isReading) return undefined;
  return getText(base, "status", token).then((status) => postMessage({ status }), report);
}

addEventListener("message", (event) => {
  token = event.data.token;
  read();
  if (token) {
    setInterval(read, slow); // a stream of events can't carry a token
  } else {
    const events = new EventSource(`${base}events`);
    events.addEventListener("changed", read);
    // A stream that was refused isn't opened again, as one is that has ended.
    setInterval(() => (events.readyState === EventSource.CLOSED ? read() : readStatus()), slow);
  }
});
