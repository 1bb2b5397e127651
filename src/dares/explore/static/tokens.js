// The text as a row of tokens: coloured, and chosen with the mouse or the arrow keys.

import { number, paint } from "./colours.js";
import { quoted, visible } from "./words.js";

export class Tokens {
  constructor(element, choose) {
    this.element = element;
    this.choose = choose;
    this.shown = [];
    this.options = [];
    this.chosen = null;
    element.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) this.move(this.options.indexOf(option));
    });
    element.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(tokens, chosen) {
    const focused = this.element.contains(document.activeElement);
    const same =
      tokens.length === this.shown.length &&
      tokens.every((token, place) => token.text === this.shown[place].text);
    this.shown = tokens;
    if (!same) {
      this.options = tokens.map((token) => {
        const option = document.createElement("span");
        option.setAttribute("role", "option");
        option.textContent = visible(token.text);
        return option;
      });
      this.element.replaceChildren(
        ...this.options.flatMap((option, place) =>
          // the text's own lines
          tokens[place].text.includes("\n") ? [option, document.createElement("br")] : [option],
        ),
      );
    }
    this.mark(chosen);
    if (focused) this.options[chosen]?.focus();
  }

  paint(range, title) {
    this.options.forEach((option, place) => {
      const { text, value } = this.shown[place];
      paint(option, value, range);
      const label = `${quoted(text)}, ${title}: ${number(value)}`;
      option.setAttribute("aria-label", label);
      option.title = label;
    });
  }

  mark(place) {
    this.chosen = place;
    this.options.forEach((option, each) => {
      option.setAttribute("aria-selected", each === place);
      option.tabIndex = each === place ? 0 : -1;
    });
  }

  move(place) {
    if (place < 0 || place >= this.options.length) return;
    this.mark(place);
    this.options[place].focus();
    this.choose(place);
  }

  onKey(event) {
    const last = this.options.length - 1;
    const to = {
      ArrowLeft: () => Math.max(this.chosen - 1, 0),
      ArrowRight: () => Math.min(this.chosen + 1, last),
      ArrowUp: () => this.onLine(-1),
      ArrowDown: () => this.onLine(1),
      Home: () => 0,
      End: () => last,
    }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(to());
  }

  // The token nearest to the chosen one on the line above (-1) or below (1).
  onLine(direction) {
    const middle = (box) => (box.left + box.right) / 2;
    const boxes = this.options.map((option) => option.getBoundingClientRect());
    const here = boxes[this.chosen];
    const beyond = boxes.filter((box) => direction * (box.top - here.top) > here.height / 2);
    if (!beyond.length) return this.chosen;
    const top = beyond.reduce((best, box) =>
      Math.abs(box.top - here.top) < Math.abs(best.top - here.top) ? box : best,
    ).top;
    const line = beyond.filter((box) => Math.abs(box.top - top) < here.height / 2);
    const away = (box) => Math.abs(middle(box) - middle(here));
    return boxes.indexOf(line.reduce((best, box) => (away(box) < away(best) ? box : best)));
  }
}
