// SPDX-License-Identifier: MIT
// A browser starts no worker for a page that it has opened from a directory. There, the search of the theme runs in a hidden frame.
// The theme loads a script with this name from another host unless the site has its own.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const base = new URL(address, document.baseURI);
      const inside = this.frame.contentWindow;
      const load = (script) => new Promise((done, failed) => {
        const added = inside.document.createElement("script");
        Object.assign(added, { src: new URL(script, base), onload: done, onerror: failed });
        inside.document.head.append(added);
      });
      inside.importScripts = (...scripts) => Promise.all(scripts.map(load));
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.__index = window.__index;
      this.ready = load(base);
    }
    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() { this.frame.remove(); }
  };
}
