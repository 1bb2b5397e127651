// One model's part of the page: its tokens, and the chosen token's weights and next tokens.

import { number } from "./colours.js";
import { Heatmap } from "./heatmap.js";
import { showNext } from "./next.js";
import { ask, oneAtATime } from "./server.js";
import { Switches } from "./switches.js";
import { Tokens } from "./tokens.js";
import { quoted, sentence } from "./words.js";

export class Panel {
  // page: { text(), measure(), onTokens(), onChoose(panel, token), say(sentence) }
  constructor(model, number, page) {
    Object.assign(this, { model, number, page });
    this.section = document.getElementById("model").content.firstElementChild.cloneNode(true);
    this.part = (selector) => this.section.querySelector(selector);
    this.part("h2").textContent = model.label;
    this.section.setAttribute("aria-label", model.label);
    this.part(".tokens").setAttribute("aria-label", `Tokens as ${model.label} reads them`);
    this.tokens = new Tokens(this.part(".tokens"), (place) => this.choose(place));
    this.off = new Switches(() => this.refresh());
    this.offAtLast = [];
    this.chosen = null; // the last token, until one is chosen
    this.answer = null;
    if (model.sites.length) {
      const toggle = (source, site) => this.off.toggle(source, site);
      this.heatmap = new Heatmap(this.section, model, toggle);
    }
    this.part(".weights").hidden = !model.sites.length;
    this.part(".note").hidden = model.note === null;
    this.part(".note").textContent = model.note === null ? "" : sentence(model.note);
    this.showFacts();
    this.textIsStale = true;
    this.run = oneAtATime(() => this.update());
  }

  // Something about the text changed: its letters, the measure, what is off.
  refresh() {
    this.textIsStale = true;
    return this.run();
  }

  choose(place) {
    this.chosen = place;
    this.page.onChoose(this, this.answer.tokens[place]);
    return this.run();
  }

  // The token that holds what another model's token ends with.
  follow(token) {
    if (!this.answer) return;
    const places = this.answer.tokens.map((_, place) => place);
    const before = places.filter((place) => this.answer.tokens[place].start < token.end);
    this.chosen = before.at(-1) ?? 0;
    this.tokens.mark(this.chosen);
    this.run();
  }

  async update() {
    this.section.setAttribute("aria-busy", "true");
    try {
      if (this.textIsStale) await this.updateTokens();
      await this.updateToken();
      this.offAtLast = this.off.list();
      this.showError(null);
    } catch (error) {
      this.off.set(this.offAtLast); // what is shown is still without the last switch
      this.textIsStale = true;
      this.showError(error.message);
      this.page.say("");
    }
    this.section.setAttribute("aria-busy", "false");
  }

  async updateTokens() {
    this.textIsStale = false;
    const text = this.page.text();
    const question = { model: this.number, text, measure: this.page.measure(), off: this.off.list() };
    this.answer = await ask("tokens", question);
    this.asked = text;
    const last = this.answer.tokens.length - 1;
    const place = Math.min(this.chosen ?? last, last);
    this.tokens.show(this.answer.tokens, place);
    this.showFacts();
    this.page.onTokens();
    this.page.say(`${this.model.label}: ${this.count()} read.`);
  }

  async updateToken() {
    if (!this.answer) return;
    const off = this.off.list();
    const question = { model: this.number, text: this.asked, token: this.tokens.chosen, off };
    const answer = await ask("token", question);
    this.part(".token").hidden = false;
    this.part(".reads h3").textContent = `What the layers read at ${quoted(answer.text)}`;
    this.heatmap?.show(answer.weights, this.off);
    showNext(this.part(".next"), answer, this.off, this.model, (source, site) => {
      this.off.toggle(source, site);
      this.heatmap.focus(); // the button that had it goes away
    });
    if (off.length) {
      const moved = `what follows ${quoted(answer.text)} moved by a KL divergence of`;
      this.page.say(`${this.model.label}: ${moved} ${number(answer.divergence)} nats.`);
    }
  }

  count() {
    const { length } = this.answer.tokens;
    return length === 1 ? "1 token" : `${length} tokens`;
  }

  showFacts() {
    const { scheme, layers, parameters } = this.model;
    const facts = [schemeWords(scheme), `${layers} layers`, `${short(parameters)} parameters`];
    if (this.answer) facts.push(`${this.count()} of at most ${this.model.most_tokens}`);
    if (this.answer && this.answer.loss !== null) {
      const before = this.off.size ? ` (${this.answer.loss_before.toFixed(3)} with nothing off)` : "";
      facts.push(`mean loss ${this.answer.loss.toFixed(3)} nats a token${before}`);
    }
    if (this.answer && !this.answer.measured) {
      facts.push("no routing weights to colour tokens by");
    }
    this.part(".facts").textContent = facts.join(" · ");
  }

  showError(words) {
    const error = this.part(".error");
    error.hidden = words === null;
    error.textContent = words === null ? "" : sentence(words);
    this.section.classList.toggle("stale", words !== null);
  }
}

function schemeWords(scheme) {
  if (scheme === null) return "no residual scheme";
  if (scheme.scheme !== "routed") return `scheme ${scheme.scheme}`;
  const block = scheme.block ? ` of ${scheme.block}` : "";
  return `routed: ${scheme.sources}${block}, ${scheme.merge}`;
}

function short(count) {
  const units = [
    [1e9, "B"],
    [1e6, "M"],
    [1e3, "k"],
  ];
  const [size, unit] = units.find(([least]) => count >= least) ?? [1, ""];
  return `${(count / size).toPrecision(3)}${unit}`;
}
