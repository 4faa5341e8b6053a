// Asks whether the gangs of a manifest would fit, and shows where on the wall. Only `allaboard ui` answers: it plans on the user's machine, and
// changes nothing. The operator has no such path.

import { html, useState } from "./vendor/htm-preact.js";
import { count, plain } from "./words.js";

const path = "ask";

// Returns the answer of `allaboard plan` about manifests.
async function planOf(manifests) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/yaml" }, body: manifests });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.message);
  return body.gangs;
}

// Returns the placement of a planned gang in the form of an outlook.
function outlookOf(gang) {
  const nodes = new Map();
  for (const { node, gpus = 0 } of gang.assignments) {
    if (!nodes.has(node)) nodes.set(node, { node, pods: 0, gpus: 0, requests: {}, lacks: {} });
    nodes.get(node).pods += 1;
    nodes.get(node).gpus += gpus;
  }
  return { kind: "asked", begins: null, nodes: [...nodes.values()], unplaced: gang.unplaced.length, waitsFor: [] };
}

export function Ask({ shown, show }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState({ gangs: [], error: "", isAsking: false });
  if (document.documentElement.dataset.asks === undefined) return null;
  const send = (event) => {
    event.preventDefault();
    setFound({ gangs: [], error: "", isAsking: true });
    planOf(text).then(
      (gangs) => {
        setFound({ gangs, error: gangs.length ? "" : "The manifests have no pods to place.", isAsking: false });
        const first = gangs.find((gang) => gang.feasible);
        show(first ? { name: `${first.namespace}/${first.name}`, outlook: outlookOf(first) } : null);
      },
      (error) => setFound({ gangs: [], error: error.message, isAsking: false }),
    );
  };
  return html`<section class="ask" aria-labelledby="ask">
    <h2 id="ask">Ask <small>would this job fit now? Nothing is created.</small></h2>
    <form onSubmit=${send}>
      <label for="manifests">Manifests (YAML or JSON), as for kubectl apply</label>
      <textarea id="manifests" rows="6" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
      <button disabled=${!text.trim() || found.isAsking}>${found.isAsking ? "Planning …" : "Plan"}</button>
    </form>
    <div role="status">${found.error ? html`<p class="error">${plain(found.error)}</p>` : null}
      ${found.gangs.map((gang) => html`<${Answer} key=${`${gang.namespace}/${gang.name}`} ...${{ gang, shown, show }} />`)}</div>
  </section>`;
}

function Answer({ gang, shown, show }) {
  const name = `${gang.namespace}/${gang.name}`;
  const isShown = shown === name;
  const verdict = gang.feasible ? `fits on ${count(new Set(gang.assignments.map((each) => each.node)).size, "node")}` : gang.feasible === null ? "isn't decided" : "doesn't fit";
  return html`<p class="answer"><span class="name state">${plain(name)}</span> <span class=${gang.feasible ? "fits" : "missing"}>${gang.feasible ? "✓" : "✕"} ${verdict}</span>
    ${gang.feasible ? html` <button class="link" aria-pressed=${isShown} onClick=${() => show(isShown ? null : { name, outlook: outlookOf(gang) })}>${isShown ? "Hide on the wall" : "Show on the wall"}</button>` : null}
    <br />${plain(gang.message)}</p>`;
}
