// One token's weights: sites down, sources across. A cell is chosen by mouse or arrow keys.

import { drawScale, number, paint, rangeOf } from "./colours.js";
import { sentence } from "./words.js";

const ROOM = 10; // sources up to which weights are written into their cells

export class Heatmap {
  constructor(section, model, toggle) {
    this.model = model;
    this.toggle = toggle;
    this.table = section.querySelector("table");
    this.cellText = section.querySelector(".cell");
    this.here = section.querySelector(".here");
    this.everywhere = section.querySelector(".everywhere");
    this.scale = section.querySelector(".weights .scale");
    this.rows = [];
    this.chosen = null;
    this.build();
    this.here.addEventListener("click", () => this.switch(true));
    this.everywhere.addEventListener("click", () => this.switch(false));
  }

  build() {
    const { sites, sources } = this.model;
    this.table.setAttribute("aria-label", `${this.model.label}: weight of each source at each site`);
    this.table.classList.toggle("numbers", sources.length <= ROOM);
    const head = this.table.createTHead().insertRow();
    head.append(heading("site", "col"), ...sources.map((source) => heading(source, "col")));
    const body = this.table.createTBody();
    this.rows = sites.map((site) => {
      const row = body.insertRow();
      const name = heading(site.short, "row");
      name.title = site.name;
      row.append(name);
      return sources.map((source) => {
        const cell = row.insertCell();
        cell.setAttribute("role", "gridcell");
        if (!site.sources.includes(source)) {
          cell.className = "none";
          cell.setAttribute("aria-label", `${site.name} cannot read ${source}`);
        }
        return cell;
      });
    });
    this.table.addEventListener("click", (event) => this.onPoint(event, true));
    this.table.addEventListener("mouseover", (event) => this.onPoint(event, false));
    this.table.addEventListener("mouseleave", () => this.tell(this.chosen));
    this.table.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(weights, off) {
    this.weights = weights;
    this.off = off;
    const range = rangeOf(weights.flat(), 0);
    this.model.sites.forEach((site, row) => {
      site.sources.forEach((source, place) => {
        const column = this.model.sources.indexOf(source);
        const cell = this.rows[row][column];
        const value = weights[row][place];
        const isOff = this.isOff(row, column);
        paint(cell, isOff ? null : value, range);
        cell.classList.toggle("switched", isOff);
        cell.textContent = isOff ? "off" : this.model.sources.length <= ROOM ? value.toFixed(2) : "";
        cell.setAttribute("aria-label", this.words(row, column));
      });
    });
    drawScale(this.scale, range, "weight");
    this.mark(this.chosen ?? this.largest());
  }

  // Where the deepest site looks most.
  largest() {
    const row = this.rows.length - 1;
    const weights = this.weights[row];
    const source = this.model.sites[row].sources[weights.indexOf(Math.max(...weights))];
    return { row, column: this.model.sources.indexOf(source) };
  }

  weight(row, column) {
    const place = this.model.sites[row].sources.indexOf(this.model.sources[column]);
    return place < 0 ? null : this.weights[row][place];
  }

  isOff(row, column) {
    const source = this.model.sources[column];
    return this.off.has(source, null) || this.off.has(source, this.model.sites[row].index);
  }

  words(row, column) {
    const site = this.model.sites[row].name;
    const source = this.model.sources[column];
    const weight = this.weight(row, column);
    if (weight === null) return `${site} cannot read ${source}`;
    if (this.isOff(row, column)) return `${site}: ${source} is switched off`;
    return `${site} reads ${source} with weight ${number(weight)}`;
  }

  mark(place) {
    this.chosen = place;
    this.rows.forEach((cells, row) =>
      cells.forEach((cell, column) => {
        const here = row === place.row && column === place.column;
        cell.tabIndex = here ? 0 : -1;
        cell.setAttribute("aria-selected", here);
      }),
    );
    this.tell(place);
  }

  tell(place) {
    if (!place) return;
    this.cellText.textContent = sentence(this.words(place.row, place.column));
    const { row, column } = this.chosen;
    const source = this.model.sources[column];
    const site = this.model.sites[row];
    const everywhere = this.off.has(source, null);
    this.here.hidden = everywhere;
    const verb = this.off.has(source, site.index) ? "on" : "off";
    this.here.textContent = `Switch ${source} ${verb} at ${site.short}`;
    this.everywhere.textContent = `Switch ${source} ${everywhere ? "on" : "off"} at all sites`;
  }

  focus() {
    this.rows[this.chosen.row][this.chosen.column].focus();
  }

  switch(here) {
    const { row, column } = this.chosen;
    this.toggle(this.model.sources[column], here ? this.model.sites[row].index : null);
  }

  placeOf(target) {
    const cell = target.closest?.("td:not(.none)");
    if (!cell) return null;
    const row = this.rows.findIndex((cells) => cells.includes(cell));
    return row < 0 ? null : { row, column: this.rows[row].indexOf(cell) };
  }

  onPoint(event, choose) {
    const place = this.placeOf(event.target);
    if (!place || !this.weights) return;
    if (!choose) return this.tell(place);
    this.mark(place);
    this.focus();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.placeOf(event.target)) return;
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.switch(!event.shiftKey && !this.here.hidden);
    } else if (steps[event.key]) {
      event.preventDefault();
      this.step(...steps[event.key]);
    }
  }

  // To the next cell in that direction that has a weight.
  step(down, across) {
    let { row, column } = this.chosen;
    do {
      row += down;
      column += across;
    } while (this.rows[row]?.[column]?.classList.contains("none"));
    if (!this.rows[row]?.[column]) return;
    this.mark({ row, column });
    this.focus();
  }
}

function heading(text, scope) {
  const cell = document.createElement("th");
  cell.scope = scope;
  const name = document.createElement("span");
  name.textContent = text;
  cell.append(name);
  return cell;
}
