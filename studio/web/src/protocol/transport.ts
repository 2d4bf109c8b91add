// How messages travel: a WebSocket in the browser, the comm channel of a notebook in JupyterLab. Everything above sees
// only this interface. The WebSocket comes back by itself after a lost connection.

export type ConnectionState = "open" | "closed" | "expired";

export interface Transport {
  send(text: string): void;
  sendBinary(frame: ArrayBuffer): void;
  onText(listener: (text: string) => void): void;
  onBinary(listener: (frame: ArrayBuffer) => void): void;
  onState(listener: (state: ConnectionState) => void): void;
  close(): void;
}

const FIRST_WAIT = 250;
const LONGEST_WAIT = 5000;
const EXPIRED = 4401;

export class SocketTransport implements Transport {
  private socket: WebSocket | null = null;
  private wait = FIRST_WAIT;
  private ended = false;
  private timer = 0;
  private text: (text: string) => void = () => {};
  private binary: (frame: ArrayBuffer) => void = () => {};
  private state: (state: ConnectionState) => void = () => {};

  constructor(private readonly url: string) {
    // Listeners are set in the same turn as the transport is made, so the connection may begin after it.
    queueMicrotask(() => this.connect());
    // A network that comes back is worth an attempt at once.
    window.addEventListener("online", this.hurry);
  }

  send(text: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(text);
  }

  sendBinary(frame: ArrayBuffer): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(frame);
  }

  onText(listener: (text: string) => void): void {
    this.text = listener;
  }

  onBinary(listener: (frame: ArrayBuffer) => void): void {
    this.binary = listener;
  }

  onState(listener: (state: ConnectionState) => void): void {
    this.state = listener;
  }

  close(): void {
    this.ended = true;
    window.clearTimeout(this.timer);
    window.removeEventListener("online", this.hurry);
    this.socket?.close();
  }

  private readonly hurry = (): void => {
    if (this.socket !== null || this.ended) return;
    window.clearTimeout(this.timer);
    this.connect();
  };

  private connect(): void {
    if (this.ended) return;
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      this.wait = FIRST_WAIT;
      this.state("open");
    };
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (typeof data === "string") this.text(data);
      else this.binary(data);
    };
    socket.onclose = ({ code }) => this.lost(code);
  }

  private lost(code: number): void {
    this.socket = null;
    if (this.ended) return;
    if (code === EXPIRED) {
      this.ended = true;
      this.state("expired");
      return;
    }
    this.state("closed");
    this.timer = window.setTimeout(() => this.connect(), this.wait);
    this.wait = Math.min(LONGEST_WAIT, this.wait * 2);
  }
}

/** What a notebook's front end offers (the part of anywidget's model that is used here). */
export interface NotebookModel {
  send(content: unknown, callbacks?: unknown, buffers?: ArrayBuffer[]): void;
  on(event: "msg:custom", listener: (content: { view?: string; text?: string }, buffers: DataView[]) => void): void;
  off(event: "msg:custom", listener?: unknown): void;
}

/** A notebook may show one widget several times. Each view talks to the editor by itself, under a name of its own. */
export class NotebookTransport implements Transport {
  private readonly view = Math.random().toString(36).slice(2);
  private text: (text: string) => void = () => {};
  private binary: (frame: ArrayBuffer) => void = () => {};

  constructor(private readonly model: NotebookModel) {
    model.on("msg:custom", this.receive);
  }

  send(text: string): void {
    this.model.send({ view: this.view, text });
  }

  sendBinary(frame: ArrayBuffer): void {
    this.model.send({ view: this.view }, undefined, [frame]);
  }

  onText(listener: (text: string) => void): void {
    this.text = listener;
  }

  onBinary(listener: (frame: ArrayBuffer) => void): void {
    this.binary = listener;
  }

  onState(listener: (state: ConnectionState) => void): void {
    queueMicrotask(() => listener("open"));
  }

  close(): void {
    this.model.off("msg:custom", this.receive);
    this.model.send({ view: this.view });
  }

  private readonly receive = (content: { view?: string; text?: string }, buffers: DataView[]): void => {
    if (content.view !== this.view) return;
    if (content.text !== undefined) {
      this.text(content.text);
      return;
    }
    const view = buffers[0];
    // A copy: the notebook's buffer may begin anywhere, typed arrays want aligned memory of their own.
    if (view) this.binary(new Uint8Array(view.buffer, view.byteOffset, view.byteLength).slice().buffer);
  };
}
