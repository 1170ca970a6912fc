import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { request, Agent } from 'node:http';
import { expect } from '@playwright/test';
import { answers, freePort } from './database.ts';
import { Relay } from './relay.ts';

export async function startRedis(port: number): Promise<ChildProcess> {
  const redis = spawn(
    'redis-server',
    ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'],
    { stdio: 'ignore' },
  );
  await expect.poll(() => answers(port)).toBe(true);
  return redis;
}

/** A Redis whose answers take some milliseconds: it is easily asked more than it can answer in time. */
export async function startSlowRedis(delayMs: number): Promise<{ url: string; stop: () => Promise<void> }> {
  const port = await freePort();
  const redis = await startRedis(port);
  const relay = await Relay.start(port);
  relay.delayMs = delayMs;
  return {
    url: `redis://127.0.0.1:${relay.port}`,
    stop: async () => {
      relay.stop();
      const gone = once(redis, 'exit');
      if (redis.kill('SIGKILL')) await gone;
    },
  };
}

/** Sends `count` requests for permits at once, each with a key of its own; returns the number of each result. */
export async function burst(
  http: string,
  headers: Record<string, string>,
  policy: string,
  count: number,
): Promise<Record<string, number>> {
  const agent = new Agent({ keepAlive: true, maxSockets: 400 });
  const one = (place: number) =>
    new Promise<string>((done) => {
      const body = JSON.stringify({ policy, key: `k${Date.now()}-${place}` });
      const asked = request(
        `${http}/v1/check`,
        {
          method: 'POST',
          agent,
          headers: { ...headers, 'content-type': 'application/json', 'content-length': body.length },
        },
        (answer) => {
          let text = '';
          answer.on('data', (part) => (text += part));
          answer.on('end', () => done(/"mode":"(\w+)"/.exec(text)?.[1] ?? 'store'));
        },
      );
      asked.on('error', () => done('failed'));
      asked.end(body);
    });
  const modes: Record<string, number> = {};
  for (const mode of await Promise.all(Array.from({ length: count }, (_, place) => one(place))))
    modes[mode] = (modes[mode] ?? 0) + 1;
  agent.destroy();
  return modes;
}
