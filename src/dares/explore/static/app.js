// The page: a text, a measure, and a panel for each model.

import { drawScale, rangeOf, setRamp } from "./colours.js";
import { Panel } from "./panel.js";
import { ask } from "./server.js";
import { sentence } from "./words.js";

const PAUSE = 200; // milliseconds without a key before the text is read

const byId = (id) => document.getElementById(id);
const text = byId("text");
const measure = byId("measure");
const status = byId("status");
let panels = [];

function say(sentence) {
  status.textContent = sentence;
}

async function start() {
  say("Loading…");
  let facts;
  try {
    facts = await ask("models");
  } catch (error) {
    return say(sentence(error.message));
  }
  setRamp(facts.colours);
  measure.replaceChildren(...facts.measures.map((each) => new Option(each.title, each.name)));
  const chosenMeasure = () => facts.measures[measure.selectedIndex];

  function repaint() {
    const { title, floor } = chosenMeasure();
    // one range for all models, so that their colours can be compared
    const tokens = panels.flatMap((panel) => panel.answer?.tokens ?? []);
    const range = rangeOf(tokens.map((token) => token.value), floor);
    for (const panel of panels) panel.tokens.paint(range, title);
    drawScale(byId("scale"), range, title);
  }

  panels = facts.models.map(
    (model, number) =>
      new Panel(model, number, {
        text: () => text.value,
        measure: () => measure.value,
        onTokens: repaint,
        onChoose: (from, token) =>
          panels.filter((panel) => panel !== from).forEach((panel) => panel.follow(token)),
        say,
      }),
  );
  byId("models").replaceChildren(...panels.map((panel) => panel.section));
  byId("models").classList.toggle("two", panels.length > 1);

  const refresh = () => Promise.all(panels.map((panel) => panel.refresh()));
  let waiting;
  text.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(refresh, PAUSE);
  });
  const chooseMeasure = () => {
    byId("about").textContent = chosenMeasure().about;
    return refresh();
  };
  measure.addEventListener("change", chooseMeasure);
  byId("asked").addEventListener("submit", (event) => event.preventDefault());
  await chooseMeasure();
}

start();
