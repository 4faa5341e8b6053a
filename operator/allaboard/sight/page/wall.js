// Draws the nodes on a canvas: a tile for each node, in it a square for each GPU or a bar of cpu, coloured by gang.

import { colour } from "./words.js";

const gap = 4;
const title = 18; // pixels above a group of nodes
const perRow = 4; // squares in a row of a tile

// Returns the place of each tile: {node, x, y, size, tall}, its width and height in pixels, and of each title; `height` is that of the drawing.
export function layout(nodes, width) {
  const groups = new Map();
  for (const node of nodes) {
    if (!groups.has(node.domain)) groups.set(node.domain, []);
    groups.get(node.domain).push(node);
  }
  const size = nodes.length > 2000 ? 14 : nodes.length > 400 ? 20 : nodes.length > 60 ? 34 : 52;
  const tall = Math.round(size * Math.max(0.5, Math.min(1, Math.max(...nodes.map((node) => Math.ceil(squares(node).length / perRow)), 0) / perRow || 1)));
  const across = Math.max(1, Math.floor((width + gap) / (size + gap)));
  const tiles = [];
  const titles = [];
  let y = 0;
  for (const [domain, members] of [...groups].sort(([one], [other]) => (one < other ? -1 : 1))) {
    if (groups.size > 1 || domain) {
      titles.push({ text: domain || "no label", y });
      y += title;
    }
    members.forEach((node, place) => {
      tiles.push({ node, x: (place % across) * (size + gap), y: y + Math.floor(place / across) * (tall + gap), size, tall });
    });
    y += Math.ceil(members.length / across) * (tall + gap) + gap;
  }
  return { tiles, titles, height: y };
}

// Returns the gang of each square of a tile; "" for a free square.
export function squares(node) {
  const count = Math.min(Math.round(node.gpus), 16);
  if (!count) return [];
  const scale = count / node.gpus;
  const found = [];
  for (const share of node.shares) {
    for (let used = Math.round(share.gpus * scale); used > 0 && found.length < count; used--) found.push(share.gang || "?");
  }
  while (found.length < count) found.push("");
  return found;
}

export function draw(canvas, plan, lit, style) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = width * ratio;
  canvas.height = plan.height * ratio;
  canvas.style.height = `${plan.height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.clearRect(0, 0, width, plan.height);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillStyle = style.soft;
  for (const { text, y } of plan.titles) pen.fillText(text, 0, y);
  const uses = ({ node }) => node.shares.some((share) => share.gang === lit);
  const isUsed = plan.tiles.some(uses); // a gang that has no node yet lights nothing, and dims nothing
  for (const tile of plan.tiles) drawTile(pen, tile, !isUsed || uses(tile), style);
}

function drawTile(pen, { node, x, y, size, tall }, isLit, style) {
  pen.globalAlpha = isLit ? 1 : 0.25;
  const gangs = squares(node);
  if (gangs.length) {
    const rows = Math.ceil(gangs.length / perRow);
    const side = Math.min((size - 2) / perRow, (tall - 2) / rows);
    gangs.forEach((gang, place) => {
      const left = x + 1 + (place % perRow) * side;
      const top = y + 1 + Math.floor(place / perRow) * side;
      pen.fillStyle = gang ? colour(gang) : style.free;
      pen.fillRect(left, top, side - 1, side - 1);
    });
  } else {
    drawBar(pen, node, x, y, size, tall, style);
  }
  pen.strokeStyle = node.isReady && !node.isCordoned ? style.line : style.warn;
  pen.strokeRect(x + 0.5, y + 0.5, size - 1, tall - 1);
  if (!node.isReady || node.isCordoned) {
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x + size, y + tall);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawBar(pen, node, x, y, size, tall, style) {
  pen.fillStyle = style.free;
  pen.fillRect(x + 1, y + 1, size - 2, tall - 2);
  const all = node.allocatable.cpu || 1;
  let bottom = y + tall - 1;
  for (const share of node.shares) {
    const height = ((tall - 2) * (share.requests.cpu || 0)) / all;
    pen.fillStyle = colour(share.gang || "?");
    pen.fillRect(x + 1, bottom - height, size - 2, height);
    bottom -= height;
  }
}

export function tileAt(plan, x, y) {
  return plan.tiles.find((tile) => x >= tile.x && x < tile.x + tile.size && y >= tile.y && y < tile.y + tile.tall);
}
