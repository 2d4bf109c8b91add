// Requests and their replies over a transport. A request is a promise; what the server says unasked goes to listeners.
import { decode, encode } from "./frame";
import type { Header } from "./messages";
import type { ConnectionState, Transport } from "./transport";

export class ServerError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly detail: unknown = null,
  ) {
    super(message);
  }
}

export type Reply<T> = T & { type: string };
export type Binary<T> = { header: T & Header; payload: ArrayBuffer };

type Waiting = { resolve: (reply: unknown) => void; reject: (error: Error) => void };
type Listener = (message: Header, payload: ArrayBuffer | null) => void;

export class Client {
  private next = 1;
  private state: ConnectionState | "connecting" = "connecting";
  /** What was asked before there was a connection: it is said as soon as there is one, after the listener's greeting. */
  private held: (() => void)[] = [];
  private readonly waiting = new Map<number, Waiting>();
  private listener: Listener = () => {};
  private stateListener: (state: ConnectionState) => void = () => {};

  constructor(private readonly transport: Transport) {
    transport.onText((text) => this.receive(JSON.parse(text) as Header, null));
    transport.onBinary((frame) => {
      const { header, payload } = decode(frame);
      this.receive(header, payload);
    });
    transport.onState((state) => {
      this.state = state;
      if (state !== "open") this.abandon();
      this.stateListener(state);
      for (const send of this.held.splice(0)) send();
    });
  }

  onEvent(listener: Listener): void {
    this.listener = listener;
  }

  onState(listener: (state: ConnectionState) => void): void {
    this.stateListener = listener;
  }

  /** The reply, or a ServerError. A connection that is lost, now or before, rejects with the code "lost". */
  request<T>(type: string, fields: object = {}): Promise<T> {
    return this.ask<T>((id) => this.transport.send(JSON.stringify({ type, id, ...fields })));
  }

  /** A request whose reply carries an array. */
  fetch<T>(type: string, fields: object = {}): Promise<Binary<T>> {
    return this.request<Binary<T>>(type, fields);
  }

  upload<T>(type: string, fields: object, payload: ArrayBuffer): Promise<T> {
    return this.ask<T>((id) => this.transport.sendBinary(encode({ type, id, ...fields }, payload)));
  }

  /** A message that has no reply. */
  tell(type: string, fields: object = {}): void {
    this.transport.send(JSON.stringify({ type, ...fields }));
  }

  close(): void {
    this.abandon();
    this.transport.close();
  }

  private ask<T>(send: (id: number) => void): Promise<T> {
    const id = this.next++;
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve: resolve as (reply: unknown) => void, reject });
      if (this.state === "open") send(id);
      else if (this.state === "connecting") this.held.push(() => send(id));
      else this.abandon();
    });
  }

  private receive(message: Header, payload: ArrayBuffer | null): void {
    const waiting = message.id === undefined ? undefined : this.waiting.get(message.id);
    if (!waiting || message.id === undefined) {
      this.listener(message, payload);
      return;
    }
    this.waiting.delete(message.id);
    if (message.type === "error") {
      waiting.reject(new ServerError(String(message.code), String(message.message), message.detail));
    } else waiting.resolve(payload === null ? message : { header: message, payload });
  }

  private abandon(): void {
    for (const { reject } of this.waiting.values()) reject(new ServerError("lost", "The connection was lost"));
    this.waiting.clear();
    this.held = [];
  }
}
