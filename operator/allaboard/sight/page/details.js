// One gang: why it waits, where it would run and what must end before, its members, and the last decisions about it.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { readGang } from "./data.js";
import { More } from "./wall.js";
import { GPU, amounts, count, duration, messageOf, moment, number, plain, sentence, stateOf } from "./words.js";

const rowsAtFirst = 20;
const namesShown = 6;

// Returns {name, gang, error} of the gang that is chosen; `gang` is null while it is read, and if it no longer exists.
export function useGang(name, version) {
  const [found, setFound] = useState({ name: "", gang: null, error: "" });
  useEffect(() => {
    if (!name) return undefined;
    let isWanted = true;
    const slash = name.indexOf("/");
    readGang(name.slice(0, slash), name.slice(slash + 1)).then(
      (gang) => isWanted && setFound({ name, gang, error: gang ? "" : "This gang no longer exists, or you may not read it." }),
      (error) => isWanted && setFound((last) => ({ name, gang: last.name === name ? last.gang : null, error: error.message })),
    );
    return () => (isWanted = false);
  }, [name, version]);
  return found.name === name ? found : { name, gang: null, error: "" };
}

const positive = (found) => Object.fromEntries(Object.entries(found).filter(([, value]) => value > 0));

// Returns where a gang would run: as the operator says, or else by the capacity that is kept for it; null if that isn't known.
export function outlookOf(gang, nodes) {
  if (!gang || !gang.row.position) return null;
  if (gang.outlook) {
    const places = (gang.outlook.nodes || []).map((each) => ({ ...each, lacks: positive(each.lacks || {}) }));
    return { ...gang.outlook, nodes: places, waitsFor: gang.outlook.waitsFor || [] };
  }
  if (!gang.reservation) return null;
  const places = Object.entries(gang.reservation.nodes).map(([node, requests]) => {
    const { free } = nodes.byName.get(node) || {};
    const short = Object.entries(requests).map(([resource, asked]) => [resource, asked - Math.max(0, (free && free[resource]) || 0)]);
    return { node, pods: requests.pods || 0, gpus: requests[GPU] || 0, requests, lacks: free ? positive(Object.fromEntries(short)) : {} };
  });
  return { kind: "reserved", begins: gang.reservation.begins || null, nodes: places, unplaced: 0, waitsFor: [] };
}

const certainty = { stated: "by its walltime", guessed: "guessed from run times", unknown: "uncertain" };

// One sentence, which screen readers speak when a gang is chosen.
export function outlookText(outlook, expected) {
  const begins = expected || outlook.begins; // the same time as on the board, which is rounded
  const where = outlook.nodes.length ? `on ${count(outlook.nodes.length, "node")}` : "on no node";
  const short = outlook.nodes.filter((each) => Object.keys(each.lacks).length).length;
  const parts = [
    outlook.kind === "reserved"
      ? `Capacity is kept for this gang ${where}${begins ? `; its expected start is ${moment(begins)}` : "; its start isn't known"}.`
      : `No time is known at which this gang fits. The nearest placement is ${where}.`,
  ];
  const lacking = short === outlook.nodes.length ? (short === 1 ? "It lacks" : "Each of them lacks") : `${short} of them ${short === 1 ? "lacks" : "lack"}`;
  if (short) parts.push(`${lacking} something.`);
  if (outlook.unplaced) parts.push(`${count(outlook.unplaced, "member fits", "members fit")} on no node.`);
  if (outlook.waitsFor.length) parts.push(`${count(outlook.waitsFor.length, "gang")} must end first.`);
  return parts.join(" ");
}

export function Details({ name, gang, error, outlook, now, close, choose, showWall }) {
  const title = useRef(null);
  useEffect(() => title.current.focus(), [name]);
  return html`<section class="details" id="details" aria-labelledby="gang">
    <div class="heading"><h2 id="gang" class="name" tabindex="-1" ref=${title}>${plain(name)}</h2><button class="close" onClick=${close}>Close <kbd>Esc</kbd></button></div>
    ${error ? html`<p class="error">${plain(error)}</p>` : null}
    ${gang ? html`<${Facts} ...${{ gang, now, choose }} />` : error ? null : html`<p>Reading …</p>`}
    <p role="status" class=${outlook ? "outlook" : "quiet"}>${outlook ? outlookText(outlook, gang.row.expectedStart) : ""}</p>
    ${outlook ? html`<${Outlook} ...${{ outlook, choose, showWall }} />` : null}
    ${gang && gang.row.position && gang.nodeGroups && gang.nodeGroups.length ? html`<${NodeGroups} key=${`${name} nodes`} groups=${gang.nodeGroups} />` : null}
    ${gang ? html`<${Members} key=${name} members=${gang.members} /><${History} key=${`${name} history`} history=${gang.history} />` : null}
  </section>`;
}

// Pods of other schedulers have no gang: they are named by their namespace.
function GangLink({ name, choose }) {
  if (!name) return "a gang of another namespace";
  if (!name.includes("/")) return html`pods of other schedulers in <span class="name">${plain(name)}</span>`;
  return html`<button class="link name" onClick=${() => choose(name)}>${plain(name)}</button>`;
}

function Facts({ gang, now, choose }) {
  const { row } = gang;
  const facts = [
    ["members", `${row.members.bound}/${row.members.needed}`],
    ["GPUs", number(row.gpus)],
    ["priority", row.priority],
    [row.waitingSince ? "waited" : "age", duration(now - (row.waitingSince || row.created))],
  ];
  if (row.position) facts.unshift(["position", row.position]);
  if (row.waitsFor) facts.push(["waits for", html`<${GangLink} name=${row.waitsFor} choose=${choose} />`]);
  return html`<p class=${row.position ? "why-full waits" : "why-full"}><span class="state">${stateOf(row)}</span> ${sentence(row)}</p>
    ${gang.advice ? html`<p class="why-full"><span class="state">Advice</span> ${plain(gang.advice)}</p>` : null}
    <dl class="facts">${facts.map(([term, value]) => html`<div key=${term}><dt>${term}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function listed(names) {
  const shown = names.slice(0, namesShown).map(plain).join(", ");
  return names.length > namesShown ? `${shown} and ${names.length - namesShown} more` : shown;
}

function Outlook({ outlook, choose, showWall }) {
  const [most, setMost] = useState(rowsAtFirst);
  const [mostEnds, setMostEnds] = useState(rowsAtFirst);
  return html`${outlook.nodes.length ? html`<h3>Where it would run <button class="link to-wall" onClick=${showWall}>Show the wall</button></h3>
    <div class="scroll" tabindex="0" role="region" aria-label="Where it would run"><table>
      <thead><tr><th>Node</th><th class="number">Pods</th><th>Would use</th><th>Missing</th></tr></thead>
      <tbody>${outlook.nodes.slice(0, most).map((each) => html`<tr key=${each.node}><td class="name">${plain(each.node)}</td><td class="number">${each.pods || ""}</td>
        <td>${amounts({ ...each.requests, pods: 0 })}</td><td>${Object.keys(each.lacks).length ? html`<span class="missing">✕ ${amounts(each.lacks)}</span>` : "nothing"}</td></tr>`)}</tbody>
    </table></div><${More} shown=${Math.min(most, outlook.nodes.length)} all=${outlook.nodes.length} show=${() => setMost(most + rowsAtFirst)} what="nodes" />` : null}
    ${outlook.waitsFor.length ? html`<h3>Must end first</h3>
    <ol class="ends">${outlook.waitsFor.slice(0, mostEnds).map((each, place) => html`<li key=${`${each.gang} ${place}`}>
      <span class="when">${each.ends ? moment(each.ends) : "unknown"}</span>
      <span><${GangLink} name=${each.gang} choose=${choose} />
      <small>${certainty[each.basis] || plain(each.basis)}; on <span class="name">${listed(each.nodes)}</span></small></span></li>`)}</ol>
    <${More} shown=${Math.min(mostEnds, outlook.waitsFor.length)} all=${outlook.waitsFor.length} show=${() => setMostEnds(mostEnds + rowsAtFirst)} what="gangs" />` : null}`;
}

function NodeGroups({ groups }) {
  const [most, setMost] = useState(rowsAtFirst);
  const hasRoles = groups.some((group) => group.role);
  const text = (group) => {
    const reasons = group.reasons.map(plain).join(", ");
    if (group.takes) return `takes ${count(group.takes, "more member", "more members")}`;
    return [amounts(group.lacks), reasons].filter(Boolean).join(": ");
  };
  return html`<h3>What nodes lack</h3>
    <div class="scroll" tabindex="0" role="region" aria-label="What nodes lack"><table>
      <thead><tr><th class="number">Nodes</th>${hasRoles ? html`<th>Role</th>` : null}<th>For one more member</th></tr></thead>
      <tbody>${groups.slice(0, most).map((group, place) => html`<tr key=${place} title=${group.names.map(plain).join(", ")}><td class="number">${group.nodes}</td>${hasRoles ? html`<td>${plain(group.role)}</td>` : null}<td>${text(group)}</td></tr>`)}</tbody>
    </table></div><${More} shown=${Math.min(most, groups.length)} all=${groups.length} show=${() => setMost(most + rowsAtFirst)} what="groups" />`;
}

function Members({ members }) {
  const [most, setMost] = useState(rowsAtFirst);
  const hasRoles = members.some((member) => member.role);
  return html`<h3>Members</h3>
    <div class="scroll" tabindex="0" role="region" aria-label="Members"><table>
      <thead><tr><th>Pod</th>${hasRoles ? html`<th>Role</th>` : null}<th>Node</th><th>Phase</th></tr></thead>
      <tbody>${members.slice(0, most).map((member) => html`<tr key=${member.pod}><td class="name">${plain(member.pod)}</td>${hasRoles ? html`<td>${plain(member.role)}</td>` : null}<td class="name">${plain(member.node) || "–"}</td><td>${plain(member.phase)}</td></tr>`)}</tbody>
    </table></div><${More} shown=${Math.min(most, members.length)} all=${members.length} show=${() => setMost(most + rowsAtFirst)} what="members" />`;
}

function History({ history }) {
  const [most, setMost] = useState(5);
  if (!history.length) return null;
  return html`<h3>Last decisions</h3>
    <ol class="history">${[...history].reverse().slice(0, most).map((each, place) => html`<li key=${place}><span class="when">${moment(each.lastAt)}</span>
      <span><span class="state">${plain(each.decision)}</span>${each.times > 1 ? ` ×${each.times}` : ""} ${messageOf(each, each.message || each.reason)}</span></li>`)}</ol>
    <${More} shown=${Math.min(most, history.length)} all=${history.length} show=${() => setMost(most + rowsAtFirst)} what="decisions" />`;
}
