// The wall: the nodes on a canvas, with a legend, a line about what is pointed at, and the same as a table.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { readAll } from "./data.js";
import { concerned, draw, drawGhost, drawMissing, drawOver, drawSquare, gangAt, layout, styleOf, tileAt } from "./drawing.js";
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

// Returns the groups of nodes: {label, labels, domainOf, choose}. The user chooses the label; "" is that of the racks.
function useGroups(places) {
  const [label, choose] = useState("");
  const [found, setFound] = useState({ label: "", domains: {}, labels: [] });
  useEffect(() => {
    let isWanted = true;
    readAll(`domains?label=${encodeURIComponent(label)}`).then((groups) => groups && isWanted && setFound({ ...groups, asked: label }), () => {});
    return () => (isWanted = false);
  }, [label, places]);
  const isOwn = Boolean(label) && found.asked === label;
  const domainOf = useMemo(() => (isOwn ? (node) => found.domains[node.name] || "" : (node) => node.domain), [isOwn, found]);
  return { label, labels: found.labels, domainOf, choose };
}

export function Wall({ nodes, places, groupedBy, lit, outlook, outlookOf, chosen, light, choose, style }) {
  const panel = useRef(null);
  const canvas = useRef(null);
  const over = useRef(null);
  const drawn = useRef({});
  const [width, setWidth] = useState(0);
  const [tip, setTip] = useState("");
  const groups = useGroups(places);
  const { domainOf } = groups;
  const plan = useMemo(() => (width ? layout(nodes.list, width, domainOf) : null), [places, width, domainOf]);
  const [height, setHeight] = useState(0);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    const measure = () => {
      setWidth(panel.current.clientWidth - 8);
      setHeight(panel.current.clientHeight);
    };
    measure(); // before the first paint, so that the nodes are painted with it
    const observer = new ResizeObserver(measure);
    observer.observe(panel.current);
    return () => observer.disconnect();
  }, []);
  // The canvases show the part of the plan that the panel shows.
  const part = useMemo(() => (plan ? { plan, top, height: Math.min(plan.height, height) } : null), [plan, top, height]);
  useLayoutEffect(() => {
    if (!part || !part.height) return;
    const before = drawn.current;
    const isSame = before.part === part && before.style === style;
    drawn.current = { part, style, nodes: draw(canvas.current, part, nodes.byName, style, isSame ? before.nodes : null) };
    canvas.current.dataset.drawn = Number(canvas.current.dataset.drawn || 0) + 1;
  }, [part, nodes, style]);
  const shown = lit || chosen;
  const shownOutlook = shown && shown === outlookOf ? outlook : null;
  const isClear = useRef(null);
  useLayoutEffect(() => {
    if (!part || (!shown && isClear.current === part)) return;
    drawOver(over.current, part, nodes.byName, shown, shownOutlook, style);
    isClear.current = shown ? null : part;
  }, [part, nodes, shown, shownOutlook, style]);
  useEffect(() => {
    const tops = plan && chosen ? concerned(plan, nodes.byName, chosen, shownOutlook).map((tile) => tile.y) : [];
    if (!tops.length) return;
    const { scrollTop, clientHeight } = panel.current;
    const [first, last] = [Math.min(...tops), Math.max(...tops) + plan.tall];
    if (first < scrollTop || last > scrollTop + clientHeight) panel.current.scrollTo({ top: first - 24 });
  }, [chosen, Boolean(shownOutlook)]);

  const find = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top + top];
    const tile = plan && tileAt(plan, x, y);
    const node = tile && nodes.byName.get(tile.name);
    return node ? [node, gangAt(plan, tile, node, x, y)] : [null, ""];
  };
  const point = (event) => {
    const [node, gang] = find(event);
    setTip(node ? nodeText(node) : "");
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
  const text = useMemo(() => wallText(nodes.list), [nodes]);
  const hasBars = useMemo(() => nodes.list.some((node) => !node.gpus), [places]);
  return html`<section class="wall" aria-labelledby="wall">
    <h2 id="wall">Wall <small>${count(nodes.list.length, "node")}${groups.labels.length ? "" : groupedBy ? html` by <span class="name">${plain(groupedBy)}</span>` : ""}</small></h2>
    ${groups.labels.length ? html`<div class="filters"><label>By <select value=${groups.label} onChange=${(event) => groups.choose(event.target.value)}>
      <option value="">${groupedBy ? plain(groupedBy) : "no label"}</option>${groups.labels.filter((each) => each !== groupedBy).map((each) => html`<option key=${each} value=${each}>${plain(each)}</option>`)}
    </select></label></div>` : null}
    <div class="panel" ref=${panel} tabindex="0" role="region" aria-label="The wall; the table of nodes has the same" onScroll=${() => setTop(panel.current.scrollTop)}>
      <div class="full" style=${{ height: plan ? `${plan.height}px` : "62vh" }}><div class="part">
        <canvas ref=${canvas} role="img" aria-label=${text}></canvas>
        <canvas ref=${over} class="over" aria-hidden="true" onPointerMove=${point} onPointerLeave=${leave} onClick=${pick}></canvas>
      </div></div>
    </div>
    <p class="tip" aria-hidden="true">${tip || "Point at a node to see which gangs use it, and at a square to light its gang. A click opens the gang."}</p>
    <${Legend} style=${style} hasBars=${hasBars} />
    <${NodeTable} nodes=${nodes.list} domainOf=${domainOf} />
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

function NodeTable({ nodes, domainOf }) {
  const [isOpen, setOpen] = useState(false);
  const [most, setMost] = useState(rowsAtFirst);
  const [words, setWords] = useState("");
  const asked = words.toLowerCase();
  const found = isOpen ? nodes.filter((node) => `${node.name} ${domainOf(node)} ${usersOf(node)}`.toLowerCase().includes(asked)) : [];
  return html`<details onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>The nodes as a table</summary>
    ${isOpen ? html`<div class="filters"><label>Nodes with <input type="search" placeholder="name, group or gang" value=${words} onInput=${(event) => setWords(event.target.value)} /></label></div>
    <div class="scroll" tabindex="0" role="region" aria-label="The nodes"><table>
      <thead><tr><th>Node</th><th>Group</th><th class="number">GPUs</th><th class="number">Free</th><th class="number">Stranded</th><th>State</th><th>Used by (pods)</th></tr></thead>
      <tbody>${found.slice(0, most).map((node) => html`<tr key=${node.name}>
        <td class="name">${plain(node.name)}</td><td class="name">${plain(domainOf(node))}</td><td class="number">${number(node.gpus)}</td><td class="number">${number(node.gpusFree)}</td>
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

