// The departure board: which gangs wait and why, which gangs run where, and what is free.

import { html, render, useCallback, useEffect, useMemo, useReducer, useRef, useState } from "./vendor/htm-preact.js";
import { Ask } from "./ask.js";
import { Board } from "./board.js";
import { follow, useToken } from "./data.js";
import { Details, outlookOf, useGang } from "./details.js";
import { Refused } from "./request.js";
import { TimeLine } from "./timeline.js";
import { Wall, useStyle } from "./wall.js";
import { duration, moment, number, plain } from "./words.js";

const oldAfter = 15; // seconds

function Header({ state, error }) {
  const { status, gangs, nodes } = state;
  const total = useMemo(() => {
    const found = { gpus: 0, gpusFree: 0, gpusStranded: 0, cpu: 0, cpuFree: 0 };
    for (const node of nodes.list) {
      for (const field of ["gpus", "gpusFree", "gpusStranded"]) found[field] += node[field];
      found.cpu += node.allocatable.cpu || 0;
      found.cpuFree += node.free.cpu || 0;
    }
    return found;
  }, [nodes]);
  const [what, all, free] = total.gpus ? ["GPUs", total.gpus, total.gpusFree] : ["cpu", total.cpu, total.cpuFree];
  const used = all - free;
  const since = gangs.reduce((first, gang) => (gang.waitingSince ? Math.min(first, gang.waitingSince) : first), Infinity);
  const facts = [
    [`${what} used`, html`${number(used)}<small> of ${number(all)}</small>`],
    ["free", number(free)],
    ["stranded", number(total.gpusStranded)],
    ["waiting", gangs.filter((gang) => gang.position).length],
    ["oldest wait", since < Infinity ? duration(status.at - since) : "none"],
  ];
  const share = (part) => ({ width: `${all ? (100 * part) / all : 0}%` });
  return html`<header>
    <h1><svg viewBox="0 0 16 16" aria-hidden="true"><path d="M1 1h6v6H1zm8 0h6v6H9zM1 9h6v6H1z" /></svg>Allaboard</h1>
    <dl>${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <div class="health">
      <p class=${status.leads ? "" : "warning"}>${leader(status)}</p>
      <${Age} state=${state} error=${error} />
    </div>
    <div class="meter" aria-hidden="true"><span class="used" style=${share(used)}></span><span class="stranded" style=${share(total.gpusStranded)}></span></div>
  </header>`;
}

// Who answers: the operator that schedules, or something that can't.
function leader(status) {
  if (status.source === "objects") return "⚠ No operator answers: this is what the cluster's objects say";
  if (status.source === "snapshot") return `Snapshot of ${moment(status.at)}`;
  return status.leads ? "This replica leads" : "⚠ This replica doesn't lead: it knows no reasons";
}

// How old the data are: the age of the operator's cache, and the time since they were read.
function Age({ state, error }) {
  const [, refresh] = useReducer((times) => times + 1, 0);
  useEffect(() => {
    const ticking = setInterval(refresh, 1000);
    return () => clearInterval(ticking);
  }, []);
  const age = state.status.cacheAge + (performance.now() - state.readAt) / 1000;
  const isOld = Boolean(error) || age > oldAfter || !state.status.isReady;
  return html`<p class=${isOld ? "warning" : ""}>${isOld ? "⚠ " : ""}Data ${duration(age)} old${error ? `: ${plain(error.message)}` : ""}</p>`;
}

function Token({ message }) {
  const [value, setValue] = useState("");
  const send = (event) => {
    event.preventDefault();
    useToken(value.trim());
    location.reload();
  };
  return html`<main class="alone"><h1>Allaboard</h1><form onSubmit=${send}><p class="error" role="alert">${plain(message)}</p>
    <label>Bearer token <input type="password" autocomplete="off" value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
    <button>Use this token</button></form></main>`;
}

function Page() {
  const [state, setState] = useState(null);
  const [error, setError] = useState(null);
  const [lit, setLit] = useState("");
  const [chosen, setChosen] = useState("");
  const [asked, setAsked] = useState(null); // {name, outlook} of a planned gang that the wall shows
  const style = useStyle();
  const returnTo = useRef(null);
  useEffect(() => {
    follow((found) => {
      setState(found);
      setError(null);
    }, setError);
  }, []);
  const choose = useCallback((name) => {
    if (!document.activeElement || !document.activeElement.closest(".details")) returnTo.current = name;
    setAsked(null);
    setChosen(name);
  }, []);
  const close = useCallback(() => {
    setChosen("");
    const row = [...document.querySelectorAll("#rows button")].find((button) => button.title === plain(returnTo.current));
    (row || document.getElementById("board")).focus();
  }, []);
  useEffect(() => {
    if (!chosen) return undefined;
    const listen = (event) => event.key === "Escape" && close();
    document.addEventListener("keydown", listen);
    return () => document.removeEventListener("keydown", listen);
  }, [chosen]);
  const waiting = state ? state.gangs.filter((gang) => gang.position).length : 0;
  useEffect(() => {
    document.title = waiting ? `(${waiting}) Allaboard` : "Allaboard";
  }, [waiting]);
  const found = useGang(chosen, state && state.version);
  const outlook = useMemo(() => (state ? outlookOf(found.gang, state.nodes) : null), [found.gang, state && state.nodes]);
  if (error instanceof Refused) return html`<${Token} message=${error.message} />`;
  if (!state) return html`<main class="alone"><h1>Allaboard</h1><p class=${error ? "error" : ""} role="status">${error ? plain(error.message) : "Loading what the operator shows …"}</p></main>`;
  const onWall = asked ? asked.name : chosen;
  const { status, readAt, gangs, hidden, nodes, groupedBy, places } = state;
  return html`<${Header} state=${state} error=${error} />
    <main class=${chosen ? "open" : ""}>
      <div class="left"><${Wall} ...${{ nodes, places, groupedBy, lit, choose, style }} chosen=${onWall} outlook=${asked ? asked.outlook : outlook} outlookOf=${onWall} light=${setLit} />
      ${chosen ? html`<${Details} ...${{ ...found, outlook, close, choose }} now=${status.at} showWall=${() => document.getElementById("wall").scrollIntoView()} />` : null}</div>
      <${Board} ...${{ gangs, hidden, readAt, lit, chosen, choose, style }} at=${status.at} light=${setLit} />
      <${TimeLine} choose=${choose} />
      <${Ask} shown=${asked ? asked.name : ""} show=${setAsked} />
    </main>`;
}

const place = document.getElementById("page");
place.replaceChildren();
render(html`<${Page} />`, place);
