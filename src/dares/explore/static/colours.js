// Numbers as colours. The ramp comes from the server: it is that of the figures in the docs.

let ramp = [[0, 0, 0]];

export function setRamp(names) {
  ramp = names.map((name) => [1, 3, 5].map((at) => parseInt(name.slice(at, at + 2), 16)));
}

// The range that some values span; `floor` is where it begins, if that is known.
export function rangeOf(values, floor) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return null;
  const low = floor ?? Math.min(...known);
  const high = Math.max(...known);
  // rounding is no difference worth colours
  return high - low > 1e-6 * Math.max(1, Math.abs(high)) ? { low, high } : { low, high: low };
}

export function paint(element, value, range) {
  if (value === null || range === null) {
    element.style.removeProperty("background-color");
    element.style.removeProperty("color");
    return;
  }
  const width = range.high - range.low;
  const colour = mixed(width ? (value - range.low) / width : 0);
  element.style.backgroundColor = `rgb(${colour.join(" ")})`;
  element.style.color = inkOn(colour);
}

function mixed(share) {
  const place = Math.min(Math.max(share, 0), 1) * (ramp.length - 1);
  const left = Math.min(Math.floor(place), ramp.length - 2);
  const right = ramp[left + 1];
  return ramp[left].map((part, i) => Math.round(part + (place - left) * (right[i] - part)));
}

// Black or white, whichever stands out more: at least 4.5 to 1 on any colour.
function inkOn(colour) {
  const [red, green, blue] = colour.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return light > 0.179 ? "#000" : "#fff";
}

// A bar that says what the colours mean.
export function drawScale(element, range, name) {
  element.replaceChildren();
  element.hidden = range === null;
  if (range === null) return;
  const bar = document.createElement("span");
  bar.className = "bar";
  const stops = ramp.map((colour) => `rgb(${colour.join(" ")})`);
  bar.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  const ends = [range.low, range.high].map((value) => {
    const end = document.createElement("span");
    end.textContent = number(value);
    return end;
  });
  element.append(`${name} `, ends[0], bar, ends[1]);
  const [low, high] = ends.map((end) => end.textContent);
  element.setAttribute("aria-label", `${name}: dark is ${low}, bright is ${high}`);
}

export function number(value) {
  if (value === null) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 0.001) return value.toExponential(1);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 4);
}
