// The departure board: which gangs wait and why, which gangs run where, and what is free.

import { html, render, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { Refused, follow, readGang, useToken } from "./data.js";
import { draw, layout, tileAt } from "./wall.js";
import { colour, duration, keyOf, moment, number, sentence } from "./words.js";

function Header({ state }) {
  const { status, gangs, nodes } = state;
  const sum = (field) => nodes.nodes.reduce((total, node) => total + node[field], 0);
  const waits = gangs.gangs.filter((gang) => gang.waitingSince).map((gang) => status.at - gang.waitingSince);
  const facts = [
    ["GPUs used", `${number(sum("gpus") - sum("gpusFree"))} of ${number(sum("gpus"))}`],
    ["free", number(sum("gpusFree"))],
    ["stranded", number(sum("gpusStranded"))],
    ["waiting", gangs.gangs.filter((gang) => gang.position).length],
    ["longest wait", waits.length ? duration(Math.max(...waits)) : "none"],
    ["age", duration(status.cacheAge)],
  ];
  return html`<header>
    <h1>Allaboard</h1>
    <dl>${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${status.leads ? null : html`<span class="error">This replica doesn't lead: it knows no reasons.</span>`}
  </header>`;
}

// Rows keep their places while the pointer is over the table, so that a click never meets another row.
function useSteadyOrder(rows) {
  const shown = useRef([]);
  const held = useRef(false);
  const byKey = new Map(rows.map((row) => [keyOf(row), row]));
  if (held.current) {
    const kept = shown.current.filter((key) => byKey.has(key));
    shown.current = [...kept, ...[...byKey.keys()].filter((key) => !kept.includes(key))];
  } else {
    shown.current = [...byKey.keys()];
  }
  const hold = { onPointerEnter: () => (held.current = true), onPointerLeave: () => (held.current = false) };
  return [shown.current.map((key) => byKey.get(key)), hold];
}

function Board({ state, lit, setLit, setChosen }) {
  const [words, setWords] = useState("");
  const [which, setWhich] = useState("waiting");
  const asked = words.toLowerCase();
  const rows = state.gangs.gangs
    .filter((gang) => which === "all" || (which === "waiting") === Boolean(gang.position))
    .filter((gang) => `${keyOf(gang)} ${gang.state} ${sentence(gang)}`.toLowerCase().includes(asked))
    .sort((one, other) => (one.position || Infinity) - (other.position || Infinity) || (keyOf(one) < keyOf(other) ? -1 : 1));
  const [steady, hold] = useSteadyOrder(rows);
  return html`<section aria-labelledby="board">
    <h2 id="board">Board</h2>
    <div class="filters">
      <label>Show <select value=${which} onChange=${(event) => setWhich(event.target.value)}>
        <option value="waiting">waiting gangs</option><option value="running">running gangs</option><option value="all">all gangs</option>
      </select></label>
      <label>with <input type="search" placeholder="name or reason" value=${words} onInput=${(event) => setWords(event.target.value)} /></label>
    </div>
    <div class="scroll"><table id="rows" ...${hold}>
      <thead><tr><th class="number">#</th><th>Gang</th><th class="number">Members</th><th class="number">GPUs</th><th>Waited</th>
        <th class="wide">Expected</th><th>Reason</th></tr></thead>
      <tbody>${steady.map((gang) => html`<${Row} key=${keyOf(gang)} gang=${gang} now=${state.status.at} ...${{ lit, setLit, setChosen }} />`)}</tbody>
    </table></div>
    ${steady.length ? null : html`<p>No gang ${which === "waiting" ? "waits" : "is shown"}.</p>`}
    ${state.gangs.hidden ? html`<p>${state.gangs.hidden} gangs of namespaces that you may not read are left out.</p>` : null}
  </section>`;
}

function Row({ gang, now, lit, setLit, setChosen }) {
  const key = keyOf(gang);
  const light = { onPointerEnter: () => setLit(key), onPointerLeave: () => setLit("") };
  return html`<tr aria-selected=${lit === key} onClick=${() => setChosen(key)} ...${light}>
    <td class="number">${gang.position || ""}</td>
    <td><span class="swatch" style=${{ background: colour(key) }}></span><button onFocus=${() => setLit(key)}>${key}</button></td>
    <td class="number" data-title="members">${gang.members.bound}/${gang.members.needed}</td>
    <td class="number" data-title="GPUs">${number(gang.gpus)}</td>
    <td data-title="waited">${gang.waitingSince ? duration(now - gang.waitingSince) : ""}</td>
    <td class="wide">${gang.expectedStart ? moment(gang.expectedStart) : ""}</td>
    <td class="reason"><span class="state">${gang.state}</span> ${sentence(gang)}</td>
  </tr>`;
}

function Wall({ nodes, lit }) {
  const canvas = useRef(null);
  const [width, setWidth] = useState(0);
  const [tip, setTip] = useState("");
  const plan = useMemo(() => layout(nodes.nodes, width || 600), [nodes, width]);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(canvas.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const styles = getComputedStyle(document.documentElement);
    const style = Object.fromEntries(["soft", "free", "line", "warn"].map((name) => [name, styles.getPropertyValue(`--${name}`)]));
    draw(canvas.current, plan, lit, style);
  }, [plan, lit]);
  const point = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const tile = tileAt(plan, event.clientX - box.left, event.clientY - box.top);
    setTip(tile ? nodeText(tile.node) : "");
  };
  return html`<section aria-labelledby="wall">
    <h2 id="wall">Wall${nodes.groupedBy ? ` by ${nodes.groupedBy}` : ""}</h2>
    <canvas ref=${canvas} aria-label="The nodes, and which gangs use them; the table below has the same" role="img" onPointerMove=${point}></canvas>
    <p class="tip" aria-live="off">${tip}</p>
    <details><summary>The same as a table</summary><div class="scroll"><table>
      <thead><tr><th>Node</th><th>Group</th><th class="number">GPUs</th><th class="number">Free</th><th class="number">Stranded</th><th>Used by</th></tr></thead>
      <tbody>${nodes.nodes.slice(0, 500).map((node) => html`<tr key=${node.name}>
        <td>${node.name}</td><td>${node.domain}</td><td class="number">${number(node.gpus)}</td><td class="number">${number(node.gpusFree)}</td>
        <td class="number">${number(node.gpusStranded)}</td><td>${usersOf(node)}</td></tr>`)}</tbody>
    </table></div>${nodes.nodes.length > 500 ? html`<p>The first 500 of ${nodes.nodes.length} nodes.</p>` : null}</details>
  </section>`;
}

const usersOf = (node) => node.shares.map((share) => `${share.gang || "another namespace"} (${share.pods})`).join(", ") || "none";

function nodeText(node) {
  const free = node.gpus ? `${number(node.gpusFree)} of ${number(node.gpus)} GPUs free` : `${number(node.free.cpu || 0)} cpu free`;
  const trouble = node.isReady ? (node.isCordoned ? ", cordoned" : "") : ", not ready";
  return `${node.name}: ${free}${trouble}; used by ${usersOf(node)}`;
}

function Details({ name, version, close }) {
  const [gang, setGang] = useState(null);
  useEffect(() => {
    const [namespace, own] = name.split("/");
    readGang(namespace, own).then(setGang, () => setGang(null));
  }, [name, version]);
  if (!gang) return null;
  return html`<section aria-labelledby="gang">
    <h2 id="gang">${name} <button onClick=${close}>close</button></h2>
    <p><span class="state">${gang.row.state}</span> ${sentence(gang.row)}</p>
    <div class="scroll"><table>
      <thead><tr><th>Pod</th><th>Role</th><th>Node</th><th>Phase</th></tr></thead>
      <tbody>${gang.members.map((member) => html`<tr key=${member.pod}><td>${member.pod}</td><td>${member.role}</td><td>${member.node}</td><td>${member.phase}</td></tr>`)}</tbody>
    </table></div>
    <h2>Last decisions</h2>
    <div class="scroll"><table>
      <thead><tr><th>Time</th><th>Decision</th><th>Reason</th><th class="number">Times</th></tr></thead>
      <tbody>${[...gang.history].reverse().map((each) => html`<tr><td>${moment(each.lastAt)}</td><td>${each.decision}</td><td>${each.message || each.reason}</td><td class="number">${each.times}</td></tr>`)}</tbody>
    </table></div>
  </section>`;
}

function Token({ message }) {
  const [value, setValue] = useState("");
  const send = (event) => {
    event.preventDefault();
    useToken(value.trim());
    location.reload();
  };
  return html`<form onSubmit=${send}><p class="error">${message}</p>
    <label>Bearer token <input type="password" autocomplete="off" value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
    <button>Use this token</button></form>`;
}

function Page() {
  const [state, setState] = useState(null);
  const [error, setError] = useState(null);
  const [lit, setLit] = useState("");
  const [chosen, setChosen] = useState("");
  useEffect(() => {
    follow((found) => {
      setState(found);
      setError(null);
    }, setError);
  }, []);
  if (error instanceof Refused) return html`<${Token} message=${error.message} />`;
  if (!state) return html`<p class=${error ? "error" : ""}>${error ? error.message : "Loading what the operator shows …"}</p>`;
  return html`<main>
    <${Header} state=${state} />
    ${error ? html`<p class="error">${error.message}; this is what was read last.</p>` : null}
    <${Wall} nodes=${state.nodes} lit=${lit || chosen} />
    ${chosen ? html`<${Details} name=${chosen} version=${state.status.at} close=${() => setChosen("")} />` : null}
    <${Board} ...${{ state, lit, setLit, setChosen }} />
  </main>`;
}

render(html`<${Page} />`, document.getElementById("page"));
