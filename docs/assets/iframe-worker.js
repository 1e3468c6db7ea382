/* Browsers start no worker for a page that was opened from a disk. There, the search runs in a hidden frame instead. */
(() => {
  const load = (frame, url) => new Promise((resolve, reject) => {
    const script = frame.document.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = () => reject(new Error(`cannot load ${url}`));
    frame.document.body.append(script);
  });

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const element = document.createElement("iframe");
      element.hidden = true;
      element.title = "search";
      document.body.append(element);
      this.element = element;
      const frame = element.contentWindow;
      frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      frame.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => load(frame, one)), Promise.resolve());
      this.ready = load(frame, url);
    }

    postMessage(data) {
      this.ready.then(() => this.element.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() { this.element.remove(); }
  }

  if (location.protocol === "file:") window.Worker = IFrameWorker;
})();
