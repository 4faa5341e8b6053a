// Keeps the state that the page shows, from what a worker reads.

import { Refused, get } from "./request.js";
import { rowKeyOf } from "./words.js";

let token = sessionStorage.getItem("token") || "";

export const readGang = (namespace, name) => get("api/v1/", `gangs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, token);

export const readAll = (path) => get("api/v1/", path, token);

export function useToken(value) {
  token = value;
  sessionStorage.setItem("token", value);
}

// Keeps rows by name. Returns {list, byName}, a new object only if a row has changed.
function rows(nameOf) {
  const byName = new Map();
  let found = { list: [], byName };
  let order = [];
  return (change) => {
    for (const row of change.rows) byName.set(nameOf(row), row);
    if (change.names) {
      order = change.names;
      const present = new Set(order);
      for (const name of [...byName.keys()]) if (!present.has(name)) byName.delete(name);
    }
    if (change.names || change.rows.length) found = { list: order.map((name) => byName.get(name)), byName };
    return found;
  };
}

// Returns the first answers in the form of a change.
function firstChange(gangs, nodes) {
  const [gangRows, nodeRows] = [gangs ? gangs.gangs : [], nodes ? nodes.nodes : []];
  return {
    gangs: { rows: gangRows, names: gangRows.map(rowKeyOf) },
    hidden: gangs ? gangs.hidden : 0,
    nodes: { rows: nodeRows, names: nodeRows.map((node) => node.name) },
    groupedBy: nodes ? nodes.groupedBy : "",
  };
}

// Calls `show(state)` with each new state, and `fail(error)` if it can't be read.
//
// `version` counts the readings. `places` counts the changes after which tiles of nodes have other places.
export function follow(show, fail) {
  const keepGangs = rows(rowKeyOf);
  const keepNodes = rows((node) => node.name);
  const shapes = new Map();
  let state = { version: 0, places: 0 };
  const reader = new Worker(new URL("reader.js", import.meta.url), { type: "module" });
  reader.onmessage = ({ data }) => {
    if (data.error) {
      fail(data.isRefused ? new Refused(data.error) : new Error(data.error));
      return;
    }
    state = { ...state, status: JSON.parse(data.status), readAt: performance.now() };
    const change = data.first ? firstChange(JSON.parse(data.first.gangs), JSON.parse(data.first.nodes)) : data.change && JSON.parse(data.change);
    if (change) {
      let isMoved = Boolean(change.nodes.names);
      for (const node of change.nodes.rows) {
        const shape = `${node.domain} ${node.gpus}`;
        isMoved = isMoved || shapes.get(node.name) !== shape;
        shapes.set(node.name, shape);
      }
      if (change.nodes.names) {
        const present = new Set(change.nodes.names);
        for (const name of [...shapes.keys()]) if (!present.has(name)) shapes.delete(name);
      }
      state.places += isMoved ? 1 : 0;
      state.version += 1;
      state.gangs = keepGangs(change.gangs).list;
      state.nodes = keepNodes(change.nodes);
      state.hidden = change.hidden;
      state.groupedBy = change.groupedBy;
    }
    show(state);
  };
  reader.onerror = () => fail(new Error("The page's reader has stopped; load the page again"));
  reader.postMessage({ token });
}
