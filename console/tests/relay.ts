import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';

/** A wire to another server that can be slow, and that can be cut. */
export class Relay {
  /** The delay of each part of an answer and of a question. */
  delayMs = 0;
  private isCut = false;
  private readonly open = new Set<Socket>();
  private readonly proxy: Server;

  private constructor(private readonly to: number) {
    this.proxy = createServer((client) => {
      if (this.isCut) return void client.destroy();
      const server = connect(this.to, '127.0.0.1');
      this.pass(client, server);
      this.pass(server, client);
    });
  }

  static async start(to: number): Promise<Relay> {
    const relay = new Relay(to);
    await new Promise<void>((done) => relay.proxy.listen(0, '127.0.0.1', done));
    return relay;
  }

  get port(): number {
    return (this.proxy.address() as AddressInfo).port;
  }

  cut(): void {
    this.isCut = true;
    this.open.forEach((socket) => socket.destroy());
  }

  mend(): void {
    this.isCut = false;
  }

  stop(): void {
    this.cut();
    this.proxy.close();
  }

  private pass(from: Socket, to: Socket): void {
    this.open.add(from);
    const waiting: { at: number; data: Buffer }[] = [];
    const write = () => {
      const now = performance.now();
      while (waiting[0] && waiting[0].at <= now) to.write(waiting.shift()!.data);
      if (waiting[0]) setTimeout(write, waiting[0].at - now);
    };
    from.on('data', (data) => {
      const isAlone = waiting.length === 0;
      // Nothing overtakes what came before a change of the delay.
      const at = Math.max(performance.now() + this.delayMs, waiting.at(-1)?.at ?? 0);
      waiting.push({ at, data });
      if (isAlone) write();
    });
    from.on('error', () => {});
    from.on('close', () => (this.open.delete(from), to.destroy()));
  }
}
