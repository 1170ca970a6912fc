import type { FullResult, Reporter, TestCase, TestResult } from '@playwright/test/reporter';

/** A line for each test, what failed at the end, and then the counts. */
export default class CountingReporter implements Reporter {
  private readonly counts = { passed: 0, failed: 0, skipped: 0 };
  private readonly failures: string[] = [];

  onTestEnd(test: TestCase, result: TestResult): void {
    const name = test.titlePath().slice(2).join(' › ');
    const outcome = result.status === 'passed' || result.status === 'skipped' ? result.status : 'failed';
    this.counts[outcome] += 1;
    const why = test.annotations.find(({ type }) => type === 'skip')?.description;
    console.log(`${outcome.padEnd(8)}${name}${why ? ` (${why})` : ''} ${result.duration} ms`);
    if (outcome !== 'failed') return;
    const errors = result.errors.map((error) => error.stack ?? error.message ?? String(error.value));
    const pictures = result.attachments.flatMap(({ path }) => path ?? []);
    this.failures.push([name, ...errors, ...pictures].join('\n'));
  }

  onError(error: { message?: string }): void {
    this.counts.failed += 1;
    this.failures.push(error.message ?? 'unknown error');
  }

  onStdOut(chunk: string | Buffer): void {
    process.stdout.write(chunk);
  }

  onStdErr(chunk: string | Buffer): void {
    process.stderr.write(chunk);
  }

  onEnd(_result: FullResult): void {
    for (const failure of this.failures) console.log(`\n${failure}`);
    const { passed, failed, skipped } = this.counts;
    console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
  }

  printsToStdio(): boolean {
    return true;
  }
}
