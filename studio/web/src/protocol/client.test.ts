import { expect, test } from "vitest";
import { Client } from "./client";
import type { ConnectionState, Transport } from "./transport";

/** A line that opens and breaks when the test says so. */
class Line implements Transport {
  said: string[] = [];
  hear: (text: string) => void = () => {};
  become: (state: ConnectionState) => void = () => {};
  send(text: string): void {
    this.said.push((JSON.parse(text) as { type: string }).type);
  }
  sendBinary(): void {}
  onText(listener: (text: string) => void): void {
    this.hear = listener;
  }
  onBinary(): void {}
  onState(listener: (state: ConnectionState) => void): void {
    this.become = listener;
  }
  close(): void {}
}

test("what is asked before the connection opens is said after the greeting, and answered", async () => {
  const line = new Line();
  const client = new Client(line);
  client.onState(() => void client.request("hello"));
  const reply = client.request("new");
  expect(line.said).toEqual([]);
  line.become("open");
  expect(line.said).toEqual(["hello", "new"]);
  line.hear(JSON.stringify({ id: 1, type: "created" }));
  expect(await reply).toMatchObject({ type: "created" });
});

test("what is asked without a connection fails at once, and is not said later", async () => {
  const line = new Line();
  const client = new Client(line);
  const held = client.request("new");
  line.become("closed");
  await expect(held).rejects.toMatchObject({ code: "lost" });
  await expect(client.request("gallery")).rejects.toMatchObject({ code: "lost" });
  line.become("open");
  expect(line.said).toEqual([]);
});
