// Text that a model was given or gives, made visible. It is only ever set as textContent.

const NAMED = { "\n": "↵", "\t": "⇥", "\r": "␍", " ": "␣" };

// A token's text: what cannot be seen is named, and spaces stay where there is a letter as well.
export function visible(text) {
  const blank = !text.trim();
  return Array.from(text, (character) => {
    const code = character.codePointAt(0);
    if (character === " " && !blank) return character;
    if (character in NAMED) return NAMED[character];
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    return code === 127 || isHidden(code) ? `U+${code.toString(16).toUpperCase()}` : character;
  }).join("");
}

// Zero-width characters and those that turn the direction of writing.
function isHidden(code) {
  return (
    (code >= 0x80 && code < 0xa0) ||
    (code >= 0x200b && code <= 0x200f) ||
    (code >= 0x202a && code <= 0x202e) ||
    (code >= 0x2066 && code <= 0x2069) ||
    code === 0xfeff
  );
}

export function quoted(text) {
  return `“${visible(text).trim()}”`;
}

export function sentence(words) {
  const begun = words[0].toUpperCase() + words.slice(1);
  return /[.?!]$/.test(begun) ? begun : `${begun}.`;
}

export function percent(share) {
  const value = 100 * share;
  if (value < 0.01) return "< 0.01 %";
  return `${value.toFixed(value >= 0.095 ? 1 : 2)} %`;
}
