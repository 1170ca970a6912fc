/**
 * The events of an app: one stream for all tabs that show it. The first tab holds the stream, and sends them to the
 * others. Without a stream pages go on asking from time to time.
 */

/** The decisions of one node in a second, by policy and result. */
export interface Tick {
  at: number;
  node: string;
  counts: Record<string, Record<string, number>>;
}

export interface Listener {
  ontick: (tick: Tick) => void;
  /** Something changed in the catalog. */
  onrevision: () => void;
}

/** The most policies that a stream counts. */
const POLICIES_MAX = 50;
/** Time after which a stream that the server has ended or refused is requested again. */
const AGAIN_MS = 10_000;

type Message = { event: 'tick'; data: Tick } | { event: 'revision'; data: unknown };

/** Listens until the function that it returns is called. */
export function listen(app: string, policies: string[], { ontick, onrevision }: Listener): () => void {
  // Locks exist only if the page came by https, or from this machine.
  if (!('locks' in navigator)) return () => {};
  const channel = new BroadcastChannel(`sluicegate.live.${app}`);
  const stop = new AbortController();
  const hear = ({ event, data }: Message) => (event === 'tick' ? ontick(data) : onrevision());
  channel.onmessage = ({ data }) => hear(data);
  const lead = () =>
    hold(app, policies, stop.signal, (message) => {
      channel.postMessage(message);
      hear(message);
    });
  // The promise fails when this tab stops waiting for its turn.
  navigator.locks.request(channel.name, { signal: stop.signal }, lead).catch(() => {});
  return () => {
    stop.abort();
    channel.close();
  };
}

/** Holds the stream until `stop`. */
function hold(app: string, policies: string[], stop: AbortSignal, tell: (message: Message) => void): Promise<void> {
  const query = new URLSearchParams({ policy: policies.slice(0, POLICIES_MAX).join(',') });
  const url = `/v1/admin/apps/${encodeURIComponent(app)}/stream?${query}`;
  let source: EventSource;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const again = () => {
    source.close();
    timer ??= setTimeout(open, AGAIN_MS);
  };
  function open() {
    timer = undefined;
    source = new EventSource(url);
    for (const event of ['tick', 'revision'] as const) {
      source.addEventListener(event, ({ data }) => tell({ event, data: JSON.parse(data) }));
    }
    source.addEventListener('end', again);
    source.addEventListener('error', again);
  }
  open();
  return new Promise((done) => {
    stop.addEventListener('abort', () => {
      clearTimeout(timer);
      source.close();
      done();
    });
  });
}
