// What the model predicts after a token: bars, before and after sources were switched off.

import { number } from "./colours.js";
import { percent, quoted, visible } from "./words.js";

// switchOn(source, site) is called for what is to be read again.
export function showNext(section, answer, off, model, switchOn) {
  section.querySelector("h3").textContent = `What follows ${quoted(answer.text)}`;
  const changed = off.size > 0;
  const most = Math.max(...answer.next.flatMap((each) => [each.before, each.after]));
  section.querySelector("ol").replaceChildren(...answer.next.map((each) => row(each, most, changed)));
  showOff(section.querySelector(".off"), answer, off, model, switchOn);
}

function row(each, most, changed) {
  const item = document.createElement("li");
  item.classList.toggle("follows", each.follows);
  const name = element("span", "word", visible(each.text));
  const bars = element("span", "bars");
  const numbers = element("span", "numbers");
  if (changed) {
    bars.append(bar("before", each.before / most), bar("after", each.after / most));
    numbers.append(
      element("span", "before", percent(each.before)),
      " → ",
      element("span", "after", percent(each.after)),
    );
  } else {
    bars.append(bar("after", each.before / most));
    numbers.append(element("span", "after", percent(each.before)));
  }
  item.append(name, bars, numbers);
  if (each.follows) item.title = "What the text goes on with";
  return item;
}

function bar(name, share) {
  const made = element("span", `one ${name}`);
  made.style.width = `${100 * share}%`;
  return made;
}

function showOff(part, answer, off, model, switchOn) {
  part.hidden = !off.size;
  part.querySelector("ul").replaceChildren(
    ...off.list().map(({ source, site }) => {
      const where = site === null ? "all sites" : model.sites.find((each) => each.index === site).short;
      const button = element("button", "chip", `${source} at ${where} ✕`);
      button.type = "button";
      button.setAttribute("aria-label", `Switch ${source} on again at ${where}`);
      button.addEventListener("click", () => switchOn(source, site));
      const item = document.createElement("li");
      item.append(button);
      return item;
    }),
  );
  part.querySelector(".divergence").textContent =
    `Before → after. The distribution moved by a KL divergence of ${number(answer.divergence)} nats.`;
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}
