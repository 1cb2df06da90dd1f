// A page that is opened from a disk may start no worker. There, this runs the script of the site's search in a hidden frame.
"use strict";

if (location.protocol === "file:") {
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.document.write("<body></body>"); // otherwise the browser may replace the empty page later
      inside.document.close();
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...scripts) => scripts.reduce((before, it) => before.then(() => load(inside, it)), Promise.resolve());
      this.ready = load(inside, url);
      this.post = (data) => inside.dispatchEvent(new MessageEvent("message", { data }));
    }

    postMessage(data) {
      this.ready.then(() => this.post(data));
    }
  }

  function load(inside, source) {
    return new Promise((done, failed) => {
      const script = inside.document.createElement("script");
      script.src = source;
      script.onload = done;
      script.onerror = () => failed(new Error(`${source} cannot be loaded`));
      inside.document.body.append(script);
    });
  }

  window.Worker = window.IFrameWorker = FrameWorker; // the search asks for a variable of this name
}
