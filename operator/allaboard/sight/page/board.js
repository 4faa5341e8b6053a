// The board: a row for each gang. Rows keep their places while the pointer or the keyboard is at them.

import { Component, html, useEffect, useReducer, useRef, useState } from "./vendor/htm-preact.js";
import { More } from "./wall.js";
import { colour, count, duration, keyOf, moment, number, plain, rowKeyOf, sentence, stateOf } from "./words.js";

const rowsAtFirst = 100;
const columns = ["#", "Gang", "Members", "GPUs", "Waited", "Expected"];

const isWaiting = (gang) => Boolean(gang.position);
const kinds = { waiting: isWaiting, running: (gang) => !isWaiting(gang) && (gang.members.bound > 0 || gang.state === "Scheduled"), all: () => true };

function order(one, other) {
  return (one.position || Infinity) - (other.position || Infinity) || (keyOf(one) < keyOf(other) ? -1 : 1);
}

// Returns the rows to show and the listeners of their table. While the rows are held, each stays where it is: one that has left the filter
// stays, too, and new ones come last. `filter` names the filter; another filter ends this.
function useSteadyRows(rows, every, filter) {
  const [, refresh] = useReducer((times) => times + 1, 0);
  const shown = useRef({ filter, rows: [], isPointed: false, isFocused: false });
  const last = shown.current;
  if ((last.isPointed || last.isFocused) && last.filter === filter) {
    const newest = new Map(every.map((gang) => [rowKeyOf(gang), gang]));
    const kept = last.rows.map((row) => ({ gang: newest.get(rowKeyOf(row.gang)) || row.gang, hasLeft: !newest.has(rowKeyOf(row.gang)) }));
    const keys = new Set(kept.map((row) => rowKeyOf(row.gang)));
    last.rows = [...kept, ...rows.filter((gang) => !keys.has(rowKeyOf(gang))).map((gang) => ({ gang, hasLeft: false }))];
  } else {
    last.rows = rows.map((gang) => ({ gang, hasLeft: false }));
  }
  last.filter = filter;
  const hold = (field, value) => () => {
    last[field] = value;
    if (!value) refresh();
  };
  const listeners = {
    onPointerEnter: hold("isPointed", true),
    onPointerLeave: hold("isPointed", false),
    onFocusIn: (event) => (last.isFocused = event.target.matches(":focus-visible")),
    onFocusOut: hold("isFocused", false),
  };
  return [last.rows, listeners];
}

export function Board({ gangs, hidden, at, readAt, lit, chosen, light, choose, style }) {
  const [words, setWords] = useState("");
  const [which, setWhich] = useState("waiting");
  const [namespace, setNamespace] = useState("");
  const [most, setMost] = useState(rowsAtFirst);
  const now = useNow(at, readAt);
  const asked = words.trim().toLowerCase();
  const namespaces = [...new Set(gangs.map((gang) => gang.namespace))].sort();
  const rows = gangs
    .filter(kinds[which])
    .filter((gang) => !namespace || gang.namespace === namespace)
    .filter((gang) => !asked || `${keyOf(gang)} ${gang.state} ${sentence(gang)}`.toLowerCase().includes(asked))
    .sort(order);
  const [steady, listeners] = useSteadyRows(rows, gangs, `${which} ${namespace} ${asked}`);
  const counts = Object.fromEntries(Object.entries(kinds).map(([kind, test]) => [kind, gangs.filter(test).length]));
  return html`<section class="board" aria-labelledby="board">
    <h2 id="board" tabindex="-1">Board</h2>
    <div class="filters">
      <label>Show <select value=${which} onChange=${(event) => setWhich(event.target.value)}>
        <option value="waiting">waiting gangs (${counts.waiting})</option><option value="running">running gangs (${counts.running})</option><option value="all">all gangs (${counts.all})</option>
      </select></label>
      ${namespaces.length > 1 ? html`<label>of <select value=${namespace} onChange=${(event) => setNamespace(event.target.value)}>
        <option value="">all namespaces</option>${namespaces.map((each) => html`<option key=${each} value=${each}>${plain(each)}</option>`)}
      </select></label>` : null}
      <label>with <input type="search" placeholder="name or reason" value=${words} onInput=${(event) => setWords(event.target.value)} /></label>
    </div>
    <table id="rows" class=${which} role="table" aria-labelledby="board" ...${listeners}>
      <thead role="rowgroup"><tr role="row">${columns.map((name, at) => html`<th role="columnheader" scope="col" class=${at === 1 ? "" : "number"}>${name}</th>`)}
        <th role="columnheader" scope="col" class="reason">Reason</th></tr></thead>
      <tbody role="rowgroup">${steady.slice(0, most).map(({ gang, hasLeft }) => html`<${Row} key=${rowKeyOf(gang)} gang=${gang} hasLeft=${hasLeft} isLit=${lit === keyOf(gang)} isChosen=${chosen === keyOf(gang)}
        waited=${gang.waitingSince ? duration(now - gang.waitingSince) : ""} ...${{ light, choose, style }} />`)}</tbody>
    </table>
    ${steady.length ? null : html`<p class="empty">${rows.length || asked || namespace ? "No gang is shown." : which === "waiting" ? "No gang waits." : "There is no gang."}</p>`}
    <${More} shown=${Math.min(most, steady.length)} all=${steady.length} show=${() => setMost(most + rowsAtFirst)} what="gangs" />
    ${hidden ? html`<p>${count(hidden, "gang")} of namespaces that you may not read ${hidden === 1 ? "is" : "are"} left out.</p>` : null}
  </section>`;
}

// Returns the operator's time, which goes on between two readings.
function useNow(at, readAt) {
  const [, refresh] = useReducer((times) => times + 1, 0);
  useEffect(() => {
    const ticking = setInterval(refresh, 10000);
    return () => clearInterval(ticking);
  }, []);
  return at + (performance.now() - readAt) / 1000;
}

class Row extends Component {
  shouldComponentUpdate(next) {
    return Object.keys(next).some((name) => next[name] !== this.props[name]);
  }

  render({ gang, hasLeft, isLit, isChosen, waited, light, choose, style }) {
    const key = keyOf(gang);
    const [found, needed] = [gang.members.bound, gang.members.needed];
    const names = [isLit && "lit", isChosen && "chosen", hasLeft && "gone"].filter(Boolean).join(" ");
    return html`<tr role="row" class=${names} onClick=${() => choose(key)} onPointerEnter=${() => light(key)} onPointerLeave=${() => light("")}>
      <td role="cell" class="number place">${gang.position || ""}</td>
      <td role="cell" class="gang"><span class="swatch" style=${{ background: colour(key, style) }}></span><button class="name" title=${plain(key)} aria-expanded=${isChosen} onFocus=${() => light(key)} onBlur=${() => light("")}><span class="space">${plain(gang.namespace)}/</span>${plain(gang.name)}</button></td>
      <td role="cell" class=${`number members ${found && found < needed ? "part" : ""}`} data-title="members">${found}/${needed}</td>
      <td role="cell" class="number" data-title="GPUs">${number(gang.gpus)}</td>
      <td role="cell" class="number" data-title="waited">${waited}</td>
      <td role="cell" class="number expected" data-title="expected">${gang.expectedStart ? moment(gang.expectedStart) : isWaiting(gang) ? "–" : ""}</td>
      <td role="cell" class="reason"><span class="state">${hasLeft ? "Gone" : stateOf(gang)}</span> <span class="why">${hasLeft ? "This gang no longer exists." : sentence(gang)}</span></td>
    </tr>`;
  }
}
