// Draws the nodes on canvases: a tile for each node, in it a square for each GPU or a bar of cpu, coloured by gang.
//
// One canvas shows the present state; of it only tiles that have changed are drawn again. A second canvas above dims all that a gang
// doesn't concern, and shows where a waiting gang would run.

import { GPU, colour, plain } from "./words.js";

const perRow = 4; // squares in a row of a tile
const mostSquares = 16; // in a tile
const edge = 2; // pixels around the drawing, for the frames of tiles
const title = 16; // pixels above a group of nodes
const sides = [28, 24, 20, 16, 13, 11, 9, 7, 6, 5, 4, 3]; // pixels of a square with the gap beside
const tallest = 420; // pixels: larger squares are taken while the drawing isn't taller; on narrow screens it's less

export function styleOf(element) {
  const styles = getComputedStyle(element);
  const names = ["ink", "soft", "line", "free", "card", "veil", "accent", "missing", "stranded", "hidden"];
  const found = Object.fromEntries(names.map((name) => [name, styles.getPropertyValue(`--${name}`).trim()]));
  return { ...found, lightness: Number(styles.getPropertyValue("--lightness")), font: styles.fontFamily, colours: new Map() };
}

// Returns the place of each tile, {name, x, y}, and of each title, {text, x, y, width}. `wide` and `tall` are the size of a tile. `domainOf`
// returns the group of a node.
export function layout(nodes, width, domainOf) {
  const groups = new Map();
  let rows = 1;
  for (const node of nodes) {
    const domain = domainOf(node);
    if (!groups.has(domain)) groups.set(domain, []);
    groups.get(domain).push(node);
    rows = Math.max(rows, node.gpus ? Math.ceil(Math.min(Math.round(node.gpus), mostSquares) / perRow) : 2);
  }
  const sorted = [...groups].sort(([one], [other]) => (one < other ? -1 : 1));
  let plan;
  const fitting = nodes.length > 2000 ? sides.slice(-3) : sides; // the others would be too tall
  for (const side of fitting) {
    plan = arrange(sorted, width, side, rows);
    if (plan.height <= Math.min(tallest, width)) break;
  }
  return plan;
}

function arrange(groups, width, side, rows) {
  const gap = side > 5 ? 4 : 2;
  const apart = side > 5 ? 16 : 8; // pixels between two groups
  const wide = perRow * side + 3;
  const tall = rows * side + 3;
  const isTitled = groups.length > 1 || Boolean(groups.length && groups[0][0]);
  const inner = width - 2 * edge;
  const across = Math.max(1, Math.floor((inner + gap) / (wide + gap)));
  const largest = Math.max(...groups.map(([, members]) => members.length), 1);
  const deep = groups.length > 1 ? Math.max(1, Math.round(Math.sqrt((largest * wide) / (2 * tall)))) : 1;
  const least = groups.length > 1 ? Math.ceil(56 / (wide + gap)) : across; // columns that a title needs
  const tiles = [];
  const titles = [];
  let x = edge;
  let y = edge;
  let line = 0; // height of the present line of groups
  for (const [domain, members] of groups) {
    const columns = Math.min(across, Math.max(least, Math.ceil(members.length / deep)));
    const broad = columns * (wide + gap) - gap;
    if (x > edge && x + broad > width - edge) {
      x = edge;
      y += line;
      line = 0;
    }
    const top = y + (isTitled ? title : 0);
    if (isTitled) titles.push({ text: plain(domain || "no label"), x, y, width: broad });
    members.forEach((node, place) => {
      tiles.push({ name: node.name, x: x + (place % columns) * (wide + gap), y: top + Math.floor(place / columns) * (tall + gap) });
    });
    line = Math.max(line, top - y + Math.ceil(members.length / columns) * (tall + gap) + (isTitled ? apart / 2 : 0));
    x += broad + apart;
  }
  const byName = new Map(tiles.map((tile) => [tile.name, tile]));
  return { tiles, titles, byName, side, wide, tall, width, height: y + line + edge };
}

// Returns what each square of a tile shows: the name of a gang, "?" for a gang that has no name here, "-" for stranded, "" for free.
export function squares(node) {
  const all = Math.min(Math.round(node.gpus), mostSquares);
  if (!all) return [];
  const scale = all / node.gpus;
  const found = [];
  for (const share of node.shares) {
    for (let used = Math.round(share.gpus * scale); used > 0 && found.length < all; used--) found.push(share.gang || "?");
  }
  const free = all - found.length;
  const stranded = Math.min(free, Math.round(node.gpusStranded * scale));
  for (let place = 0; place < free; place++) found.push(place < free - stranded ? "" : "-");
  return found;
}

// Returns a pen for a canvas of a size in CSS pixels; the canvas is empty if its size has changed.
function penOf(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  return pen;
}

const isIn = ({ top, height, plan }, { y }) => y + plan.tall > top && y < top + height;

// Draws a part of the plan: {plan, top, height}. `drawn` has the nodes that are drawn in the tiles of the part; null draws all. Returns them.
export function draw(canvas, part, nodes, style, drawn) {
  const { plan, top, height } = part;
  const pen = penOf(canvas, plan.width, height);
  pen.translate(0, -top);
  if (!drawn) {
    pen.clearRect(0, top, plan.width, height);
    pen.font = `11px ${style.font}`;
    pen.textBaseline = "top";
    pen.fillStyle = style.soft;
    for (const { text, x, y, width } of plan.titles) if (y + title > top && y < top + height) pen.fillText(shortened(pen, text, width), x, y);
  }
  const next = new Map();
  for (const tile of plan.tiles) {
    if (!isIn(part, tile)) continue;
    const node = nodes.get(tile.name);
    if (node && (!drawn || drawn.get(tile) !== node)) drawTile(pen, plan, tile, node, style);
    next.set(tile, node);
  }
  return next;
}

function shortened(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = Math.min(text.length, Math.floor(width / 4));
  while (length && pen.measureText(`${text.slice(0, length)}…`).width > width) length--;
  return length ? `${text.slice(0, length)}…` : "";
}

function drawTile(pen, plan, tile, node, style) {
  const { x, y } = tile;
  pen.clearRect(x, y, plan.wide, plan.tall);
  if (node.gpus) {
    squares(node).forEach((gang, place) => drawSquare(pen, gang, ...cornerOf(plan, tile, place), plan.side, style));
  } else {
    drawBar(pen, plan, tile, node, style);
  }
  pen.lineWidth = 1;
  pen.strokeStyle = node.isReady && !node.isCordoned ? style.line : style.missing;
  pen.strokeRect(x + 0.5, y + 0.5, plan.wide - 1, plan.tall - 1);
  if (!node.isReady || node.isCordoned) drawCross(pen, x + 1, y + 1, plan.wide - 2, plan.tall - 2, !node.isReady);
}

const cornerOf = (plan, tile, place) => [tile.x + 2 + (place % perRow) * plan.side, tile.y + 2 + Math.floor(place / perRow) * plan.side];

// Draws one stroke, or two of them as a cross.
function drawCross(pen, x, y, width, height, isWhole) {
  pen.beginPath();
  pen.moveTo(x, y + height);
  pen.lineTo(x + width, y);
  if (isWhole) {
    pen.moveTo(x, y);
    pen.lineTo(x + width, y + height);
  }
  pen.stroke();
}

export function drawSquare(pen, gang, x, y, side, style) {
  const size = side - 1;
  if (gang === "" || gang === "-") {
    pen.fillStyle = gang && side < 6 ? style.stranded : style.free;
    pen.fillRect(x, y, size, size);
    if (gang && side >= 6) {
      pen.strokeStyle = style.stranded;
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
      drawCross(pen, x + 1, y + 1, size - 2, size - 2, false);
    }
    return;
  }
  pen.fillStyle = gang === "?" ? style.hidden : colour(gang, style);
  pen.fillRect(x, y, size, size);
}

// A square where a waiting gang would run: hatched with its colour, and framed.
export function drawGhost(pen, gang, x, y, width, height, style) {
  pen.clearRect(x, y, width, height);
  pen.fillStyle = style.card;
  pen.fillRect(x, y, width, height);
  pen.strokeStyle = colour(gang, style);
  pen.lineWidth = width < 6 ? 1 : 1.5;
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.beginPath();
  const step = width < 6 ? 2 : 4;
  for (let start = -height; start < width; start += step) {
    pen.moveTo(x + start, y + height);
    pen.lineTo(x + start + height, y);
  }
  pen.stroke();
  pen.restore();
  if (width > 4) pen.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
}

// What a waiting gang lacks: framed, with a cross.
export function drawMissing(pen, x, y, width, height, style) {
  pen.strokeStyle = pen.fillStyle = style.missing;
  if (width < 5) {
    pen.fillRect(x, y, width, height);
    return;
  }
  pen.clearRect(x, y, width, height);
  pen.fillStyle = style.card;
  pen.fillRect(x, y, width, height);
  pen.lineWidth = width < 8 ? 1 : 2;
  const inset = pen.lineWidth / 2;
  pen.strokeRect(x + inset, y + inset, width - 2 * inset, height - 2 * inset);
  const middle = Math.min(width, height) / 2 - inset - 1;
  drawCross(pen, x + width / 2 - middle, y + height / 2 - middle, 2 * middle, 2 * middle, true);
}

function drawBar(pen, plan, { x, y }, node, style) {
  pen.fillStyle = style.free;
  pen.fillRect(x + 2, y + 2, plan.wide - 4, plan.tall - 4);
  const all = node.allocatable.cpu || 1;
  let left = x + 2;
  for (const share of node.shares) {
    const width = Math.min(((plan.wide - 4) * (share.requests.cpu || 0)) / all, x + plan.wide - 2 - left);
    pen.fillStyle = share.gang ? colour(share.gang, style) : style.hidden;
    pen.fillRect(left, y + 2, Math.max(0, width - 0.5), plan.tall - 4);
    left += width;
  }
}

// Returns the tiles of nodes that a gang uses, and of those where it would run.
export function concerned(plan, nodes, gang, outlook) {
  const places = new Set(outlook ? outlook.nodes.map((each) => each.node) : []);
  return plan.tiles.filter(({ name }) => places.has(name) || (nodes.has(name) && nodes.get(name).shares.some((share) => share.gang === gang)));
}

// Dims all that the gang `lit` doesn't concern, and shows its `outlook` if there is one.
export function drawOver(canvas, part, nodes, lit, outlook, style) {
  const { plan, top, height } = part;
  const pen = penOf(canvas, plan.width, height);
  pen.clearRect(0, 0, plan.width, height);
  pen.translate(0, -top);
  const tiles = lit ? concerned(plan, nodes, lit, outlook) : [];
  if (!tiles.length) return; // a gang that concerns no node dims nothing
  pen.fillStyle = style.veil;
  pen.fillRect(0, top, plan.width, height);
  for (const { x, y, width } of plan.titles) pen.clearRect(x, y, width, title - 2);
  const places = new Map(outlook ? outlook.nodes.map((each) => [each.node, each]) : []);
  for (const tile of tiles.filter((each) => isIn(part, each))) {
    const node = nodes.get(tile.name);
    pen.clearRect(tile.x - 1, tile.y - 1, plan.wide + 2, plan.tall + 2);
    if (places.has(tile.name)) {
      drawPlace(pen, plan, tile, node, places.get(tile.name), lit, outlook, style);
      continue;
    }
    pen.fillStyle = style.veil;
    squares(node).forEach((gang, place) => {
      if (gang !== lit) pen.fillRect(...cornerOf(plan, tile, place), plan.side - 1, plan.side - 1);
    });
    frame(pen, plan, tile, style.accent, false);
  }
}

function frame(pen, plan, tile, ink, isDashed) {
  pen.strokeStyle = ink;
  pen.lineWidth = plan.side > 5 ? 2 : 1;
  pen.setLineDash(isDashed ? [4, 2] : []);
  pen.strokeRect(tile.x - 0.5, tile.y - 0.5, plan.wide + 1, plan.tall + 1);
  pen.setLineDash([]);
}

function drawPlace(pen, plan, tile, node, place, gang, outlook, style) {
  if (node.gpus) {
    const [ghosts, missing] = placesOf(node, place, outlook);
    for (const each of ghosts) drawGhost(pen, gang, ...cornerOf(plan, tile, each), plan.side - 1, plan.side - 1, style);
    for (const each of missing) drawMissing(pen, ...cornerOf(plan, tile, each), plan.side - 1, plan.side - 1, style);
  } else {
    const all = node.allocatable.cpu || 1;
    const [wants, lacks] = [place.requests.cpu || 0, place.lacks.cpu || 0].map((cpu) => ((plan.wide - 4) * cpu) / all);
    const used = ((plan.wide - 4) * (all - (node.free.cpu || 0))) / all;
    const left = tile.x + 2 + Math.max(0, used - lacks);
    const width = Math.min(wants, tile.x + plan.wide - 2 - left);
    if (width > lacks) drawGhost(pen, gang, left + lacks, tile.y + 2, width - lacks, plan.tall - 4, style);
    if (lacks) drawMissing(pen, left, tile.y + 2, Math.min(lacks, width), plan.tall - 4, style);
  }
  const isShort = Object.keys(place.lacks).length > 0;
  frame(pen, plan, tile, isShort ? style.missing : style.accent, isShort);
}

// Returns the squares of a tile where a gang would run: free ones, and used ones that it lacks, those of gangs first that must end.
export function placesOf(node, place, outlook) {
  const shown = squares(node);
  const scale = shown.length / node.gpus;
  const wants = Math.round((place.gpus || place.requests[GPU] || 0) * scale);
  const lacks = Math.min(wants, Math.round((place.lacks[GPU] || 0) * scale));
  const ends = new Set(outlook.waitsFor.filter((each) => each.nodes.includes(node.name)).map((each) => each.gang || "?"));
  const free = shown.map((gang, at) => at).filter((at) => shown[at] === "" || shown[at] === "-");
  const used = shown.map((gang, at) => at).filter((at) => !free.includes(at));
  used.sort((one, other) => ends.has(shown[other]) - ends.has(shown[one]) || one - other);
  return [free.slice(0, wants - lacks), used.slice(0, lacks)];
}

export function tileAt(plan, x, y) {
  return plan.tiles.find((tile) => x >= tile.x && x < tile.x + plan.wide && y >= tile.y && y < tile.y + plan.tall);
}

// Returns the gang at a point of a tile; "" where there is none.
export function gangAt(plan, tile, node, x, y) {
  if (!node.gpus) {
    let left = tile.x + 2;
    for (const share of node.shares) {
      left += ((plan.wide - 4) * (share.requests.cpu || 0)) / (node.allocatable.cpu || 1);
      if (x < left) return share.gang;
    }
    return "";
  }
  const column = Math.min(perRow - 1, Math.max(0, Math.floor((x - tile.x - 2) / plan.side)));
  const gang = squares(node)[Math.max(0, Math.floor((y - tile.y - 2) / plan.side)) * perRow + column] || "";
  return gang === "-" || gang === "?" ? "" : gang;
}
