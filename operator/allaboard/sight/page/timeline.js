// The last hour: GPUs used and stranded, gangs that wait, and the decisions up to a time that a slider chooses.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { readAll } from "./data.js";
import { count, messageOf, moment, number, plain } from "./words.js";

const [wide, tall] = [1000, 120]; // units of the drawing, which is stretched to the page
const decisionsShown = 6;
const pause = 15000; // milliseconds between two readings

// Returns {samples, decisions} of the last hour; null before they are read, and if there is nothing to show.
function useHour() {
  const [hour, setHour] = useState(null);
  useEffect(() => {
    const read = () =>
      Promise.all([readAll("timeline"), readAll("decisions")]).then(
        ([timeline, last]) => setHour(timeline && { samples: timeline.samples, decisions: last ? last.decisions : [] }),
        () => {}, // the header says that the operator doesn't answer
      );
    read();
    const reading = setInterval(read, pause);
    return () => clearInterval(reading);
  }, []);
  return hour && hour.samples.length > 1 ? hour : null;
}

// Returns the outline of an area from `bottom` to `top` of each sample, both functions of a sample.
function area(samples, placeOf, top, bottom) {
  const edge = (of) => samples.map((sample) => `${placeOf(sample).toFixed(1)},${of(sample).toFixed(1)}`);
  return `M${[...edge(top), ...edge(bottom).reverse()].join("L")}Z`;
}

export function TimeLine({ choose }) {
  const hour = useHour();
  const [chosen, setChosen] = useState(null); // seconds since the epoch; null for the present
  if (!hour) return null;
  const { samples, decisions } = hour;
  const [first, last] = [samples[0].at, samples[samples.length - 1].at];
  const at = chosen === null ? last : Math.min(Math.max(chosen, first), last);
  const here = samples.reduce((found, sample) => (sample.at <= at ? sample : found), samples[0]);
  const most = Math.max(...samples.map((sample) => sample.gpus), 1);
  const queue = Math.max(...samples.map((sample) => sample.waiting), 1);
  const placeOf = (sample) => ((sample.at - first) / (last - first || 1)) * wide;
  const height = (amount, all) => tall - (amount / all) * (tall - 4);
  const used = (sample) => height(sample.gpusUsed, most);
  const stranded = (sample) => height(sample.gpusUsed + sample.gpusStranded, most);
  const line = samples.map((sample) => `${placeOf(sample).toFixed(1)},${height(sample.waiting, queue).toFixed(1)}`).join(" ");
  const text = `${moment(here.at)}: ${number(here.gpusUsed)} of ${count(here.gpus, "GPU")} used, ${number(here.gpusStranded)} stranded, ${count(here.waiting, "gang waits", "gangs wait")}`;
  const before = decisions.filter((each) => each.lastAt <= at + 1).slice(-decisionsShown).reverse();
  return html`<section class="hour" aria-labelledby="hour">
    <h2 id="hour">Last hour <small>${moment(first)} to ${moment(last)}</small></h2>
    <svg viewBox=${`0 0 ${wide} ${tall}`} preserveAspectRatio="none" aria-hidden="true">
      <path class="used" d=${area(samples, placeOf, used, () => tall)} />
      <path class="stranded" d=${area(samples, placeOf, stranded, used)} />
      <polyline class="waiting" points=${line} />
      <line class="at" x1=${placeOf({ at })} x2=${placeOf({ at })} y1="0" y2=${tall} />
    </svg>
    <input type="range" aria-label="Time" min=${first} max=${last} step="15" value=${at} aria-valuetext=${text}
      onInput=${(event) => setChosen(Number(event.target.value) >= last - 15 ? null : Number(event.target.value))} />
    <p class="numbers">${text}${chosen === null ? "" : html` <button class="link" onClick=${() => setChosen(null)}>Back to now</button>`}</p>
    <ul class="legend" aria-label="Legend of the last hour"><li><span class="key used"></span>GPUs used</li><li><span class="key stranded"></span>GPUs stranded</li><li><span class="key waiting"></span>gangs that wait, at most ${queue}</li></ul>
    <h3>Decisions ${chosen === null ? "until now" : `until ${moment(at)}`}</h3>
    ${before.length ? html`<ol class="history">${before.map((each, place) => html`<li key=${`${each.lastAt} ${place}`}><span class="when">${moment(each.lastAt)}</span>
      <span><span class="state">${plain(each.decision)}</span> <button class="link name" onClick=${() => choose(`${each.namespace}/${each.name}`)}>${plain(`${each.namespace}/${each.name}`)}</button>
      ${" "}${messageOf(each, each.message || each.reason)}</span></li>`)}</ol>` : html`<p class="empty">No decision is known from then.</p>`}
  </section>`;
}
