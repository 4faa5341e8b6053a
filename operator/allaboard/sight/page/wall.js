// The wall: the nodes on a canvas, with a legend, a line about what is pointed at, and the same as a table.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { draw, drawGhost, drawMissing, drawOver, drawSquare, gangAt, layout, styleOf, tileAt } from "./drawing.js";
import { count, number, plain } from "./words.js";

const rowsAtFirst = 100; // of the table

export function useStyle() {
  const [style, setStyle] = useState(() => styleOf(document.documentElement));
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const change = () => setStyle(styleOf(document.documentElement));
    dark.addEventListener("change", change);
    return () => dark.removeEventListener("change", change);
  }, []);
  return style;
}

export function Wall({ nodes, groupedBy, lit, outlook, outlookOf, chosen, light, choose, style }) {
  const panel = useRef(null);
  const canvas = useRef(null);
  const over = useRef(null);
  const drawn = useRef({});
  const [width, setWidth] = useState(0);
  const [tip, setTip] = useState("");
  // The places of the tiles depend on the names, groups and sizes of the nodes only; the nodes in them are exchanged.
  const names = useMemo(() => nodes.map((node) => `${node.name} ${node.domain} ${node.gpus}`).join("\n"), [nodes]);
  const places = useMemo(() => (width ? layout(nodes, width) : null), [names, width]);
  const plan = useMemo(() => {
    if (!places) return null;
    const newest = new Map(nodes.map((node) => [node.name, node]));
    for (const tile of places.tiles) tile.node = newest.get(tile.node.name);
    return { ...places };
  }, [places, nodes]);

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(panel.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (!plan) return;
    const before = drawn.current;
    const isSame = before.places === places && before.style === style;
    drawn.current = { places, style, tiles: draw(canvas.current, plan, style, isSame ? before.tiles : null) };
    canvas.current.dataset.drawn = Number(canvas.current.dataset.drawn || 0) + 1;
    performance.mark("wall");
  }, [plan, style]);
  const shown = lit || chosen;
  const shownOutlook = shown && shown === outlookOf ? outlook : null;
  const concerned = useRef([]);
  useEffect(() => {
    if (plan) concerned.current = drawOver(over.current, plan, shown, shownOutlook, style);
  }, [plan, shown, shownOutlook, style]);
  useEffect(() => {
    if (!plan || !chosen || !concerned.current.length) return;
    const { scrollTop, clientHeight } = panel.current;
    const tops = concerned.current.map((tile) => tile.y);
    const [first, last] = [Math.min(...tops), Math.max(...tops) + plan.tall];
    if (first < scrollTop || last > scrollTop + clientHeight) panel.current.scrollTo({ top: first - 24 });
  }, [chosen, Boolean(shownOutlook)]);

  const find = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const tile = plan && tileAt(plan, x, y);
    return [tile, tile ? gangAt(plan, tile, x, y) : ""];
  };
  const point = (event) => {
    const [tile, gang] = find(event);
    setTip(tile ? nodeText(tile.node) : "");
    light(gang);
  };
  const leave = () => {
    setTip("");
    light("");
  };
  const pick = (event) => {
    const [, gang] = find(event);
    if (gang) choose(gang);
  };
  return html`<section class="wall" aria-labelledby="wall">
    <h2 id="wall">Wall <small>${count(nodes.length, "node")}${groupedBy ? html` by <span class="name">${plain(groupedBy)}</span>` : ""}</small></h2>
    <div class="panel" ref=${panel} tabindex="0" role="region" aria-label="The wall; the table of nodes has the same">
      <canvas ref=${canvas} role="img" aria-label=${wallText(nodes)}></canvas>
      <canvas ref=${over} class="over" aria-hidden="true" onPointerMove=${point} onPointerLeave=${leave} onClick=${pick}></canvas>
    </div>
    <p class="tip" aria-hidden="true">${tip || "Point at a node to see which gangs use it, and at a square to light its gang. A click opens the gang."}</p>
    <${Legend} style=${style} hasBars=${nodes.some((node) => !node.gpus)} />
    <${NodeTable} nodes=${nodes} />
  </section>`;
}

function wallText(nodes) {
  const full = nodes.filter((node) => node.gpus && !node.gpusFree).length;
  const bad = nodes.filter((node) => !node.isReady || node.isCordoned).length;
  return `${count(nodes.length, "node")}, ${full} without a free GPU, ${bad} not ready or cordoned`;
}

const samples = [
  ["used, a colour for each gang", (pen, style) => drawSquare(pen, "sample/gang", 0, 0, 15, style)],
  ["free", (pen, style) => drawSquare(pen, "", 0, 0, 15, style)],
  ["stranded", (pen, style) => drawSquare(pen, "-", 0, 0, 15, style)],
  ["would run here", (pen, style) => drawGhost(pen, "sample/ghost", 0, 0, 14, 14, style)],
  ["missing", (pen, style) => drawMissing(pen, 0, 0, 14, 14, style)],
];

function Legend({ style, hasBars }) {
  return html`<ul class="legend" aria-label="Legend of the wall">
    ${samples.map(([text, paint]) => html`<li key=${text}><${Sample} paint=${paint} style=${style} />${text}</li>`)}
    <li>${hasBars ? "a square is a GPU; a bar is cpu" : "a square is a GPU"}; crossed out: not ready; struck: cordoned</li>
  </ul>`;
}

function Sample({ paint, style }) {
  const canvas = useRef(null);
  useEffect(() => {
    const ratio = window.devicePixelRatio || 1;
    canvas.current.width = canvas.current.height = 14 * ratio;
    const pen = canvas.current.getContext("2d");
    pen.scale(ratio, ratio);
    paint(pen, style);
  }, [style]);
  return html`<canvas ref=${canvas} class="sample" aria-hidden="true"></canvas>`;
}

function NodeTable({ nodes }) {
  const [isOpen, setOpen] = useState(false);
  const [most, setMost] = useState(rowsAtFirst);
  const [words, setWords] = useState("");
  const asked = words.toLowerCase();
  const found = isOpen ? nodes.filter((node) => `${node.name} ${node.domain} ${usersOf(node)}`.toLowerCase().includes(asked)) : [];
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>The nodes as a table</summary>
    ${isOpen ? html`<div class="filters"><label>Nodes with <input type="search" placeholder="name, group or gang" value=${words} onInput=${(event) => setWords(event.target.value)} /></label></div>
    <div class="scroll" tabindex="0" role="region" aria-label="The nodes"><table>
      <thead><tr><th>Node</th><th>Group</th><th class="number">GPUs</th><th class="number">Free</th><th class="number">Stranded</th><th>State</th><th>Used by (pods)</th></tr></thead>
      <tbody>${found.slice(0, most).map((node) => html`<tr key=${node.name}>
        <td class="name">${plain(node.name)}</td><td class="name">${plain(node.domain)}</td><td class="number">${number(node.gpus)}</td><td class="number">${number(node.gpusFree)}</td>
        <td class="number">${number(node.gpusStranded)}</td><td>${troubleOf(node) || "ready"}</td><td class="name">${usersOf(node)}</td></tr>`)}</tbody>
    </table></div>
    <${More} shown=${Math.min(most, found.length)} all=${found.length} show=${() => setMost(most + rowsAtFirst)} what="nodes" />` : null}
  </details>`;
}

export function More({ shown, all, show, what }) {
  if (shown >= all) return null;
  return html`<p class="more">${shown} of ${all} ${what} <button onClick=${show}>Show more</button></p>`;
}

const troubleOf = (node) => (node.isReady ? (node.isCordoned ? "cordoned" : "") : "not ready");

const usersOf = (node) =>
  node.shares.map((share) => `${share.gang ? plain(share.gang) : "another namespace"} (${share.pods})`).join(", ") || "no pod";

function nodeText(node) {
  const free = node.gpus ? `${number(node.gpusFree)} of ${number(node.gpus)} GPUs free` : `${number(node.free.cpu || 0)} of ${number(node.allocatable.cpu || 0)} cpu free`;
  const stranded = node.gpusStranded > 0.05 ? `, ${number(node.gpusStranded)} stranded` : "";
  const trouble = troubleOf(node);
  return `${plain(node.name)}: ${free}${stranded}${trouble && `, ${trouble}`}; used by ${usersOf(node)}`;
}

