// The sources that are switched off: each at one site, or (null) at all.

export class Switches {
  constructor(onChange) {
    this.onChange = onChange;
    this.set([]);
  }

  get size() {
    return this.entries.size;
  }

  has(source, site) {
    return this.entries.has(key(source, site));
  }

  list() {
    return [...this.entries.values()];
  }

  set(list) {
    this.entries = new Map(list.map((each) => [key(each.source, each.site), each]));
  }

  toggle(source, site) {
    if (this.has(source, site)) {
      this.entries.delete(key(source, site));
    } else {
      // at all sites: the single ones it was off at are among them
      const kept = this.list().filter((each) => site !== null || each.source !== source);
      this.set([...kept, { source, site }]);
    }
    this.onChange();
  }
}

function key(source, site) {
  return JSON.stringify([source, site]);
}
