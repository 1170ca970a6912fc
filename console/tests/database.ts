import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Debian keeps PostgreSQL's programs here. */
const VERSIONS = '/usr/lib/postgresql';
const START_MS = 30_000;

/** A PostgreSQL that can be killed and started again. */
export class Database {
  private child: ChildProcess | undefined;

  private constructor(
    private readonly folder: string,
    private readonly port: number,
  ) {}

  get url(): string {
    return `postgres://root@127.0.0.1:${this.port}/postgres`;
  }

  static async make(): Promise<Database> {
    const folder = mkdtempSync(join(tmpdir(), 'sluicegate-postgres-'));
    if (process.getuid?.() === 0) execFileSync('chown', ['postgres', folder]);
    const database = new Database(folder, await freePort());
    const [program, ...args] = database.command(
      'initdb',
      '-A',
      'trust',
      '-U',
      'root',
      '--no-sync',
      '-E',
      'UTF8',
      '--locale=C',
    );
    execFileSync(program!, args, { stdio: 'ignore' });
    await database.start();
    return database;
  }

  async start(): Promise<void> {
    const [program, ...args] = this.command(
      'postgres',
      '-p',
      String(this.port),
      '-k',
      this.folder,
      '-h',
      '127.0.0.1',
      '-c',
      'fsync=off',
    );
    this.child = spawn(program!, args, { stdio: 'ignore' });
    const end = Date.now() + START_MS;
    while (!(await answers(this.port))) {
      if (Date.now() > end) throw new Error('PostgreSQL did not start');
      await new Promise((done) => setTimeout(done, 50));
    }
  }

  /** Stops the database as if its machine had lost power. */
  async kill(): Promise<void> {
    const gone = once(this.child!, 'exit');
    this.child!.kill('SIGQUIT');
    await gone;
  }

  async remove(): Promise<void> {
    if (this.child?.exitCode === null) await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  private command(program: string, ...args: string[]): string[] {
    const found = readdirSync(VERSIONS)
      .map((version) => join(VERSIONS, version, 'bin', program))
      .filter(existsSync)
      .sort()
      .at(-1)!;
    const words = [found, '-D', join(this.folder, 'data'), ...args];
    const other = ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups', '--pdeathsig', 'KILL', '--'];
    return process.getuid?.() === 0 ? [...other, ...words] : words;
  }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

export function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  return new Promise((done) => {
    socket.once('connect', () => done(true)).once('error', () => done(false));
  }).finally(() => socket.destroy()) as Promise<boolean>;
}
