/** The meaning of pasted text: the answer to a request for permits, such a request, or a key. */
export interface PastedText {
  app?: string | undefined;
  policy?: string | undefined;
  key?: string | undefined;
  /** The fields of an answer that refuses. */
  refusal?: { rule: string; remaining: number | null; limit: number | null; retryS: number | null };
  /** The contents of a problem (RFC 9457), such as the body of a status 429. */
  problem?: string;
}

export function parsePasted(text: string): PastedText {
  const json = text.match(/\{.*\}/s)?.[0];
  let value: unknown;
  try {
    value = json === undefined ? undefined : JSON.parse(json);
  } catch {
    value = undefined;
  }
  if (typeof value !== 'object' || value === null) return { key: text };
  const {
    app,
    policy,
    key,
    rule,
    allowed,
    remaining,
    limit,
    retry_after_us: retryUs,
  } = value as Record<string, unknown>;
  const { title, detail, status } = value as Record<string, unknown>;
  const found: PastedText = { app: word(app), policy: word(policy), key: word(key) };
  if (typeof status === 'number' && (word(detail) ?? word(title))) found.problem = word(detail) ?? word(title);
  if (allowed === false && typeof rule === 'string') {
    const retryS = typeof retryUs === 'number' ? Math.ceil(retryUs / 1e6) : null;
    found.refusal = { rule, remaining: figure(remaining), limit: figure(limit), retryS };
  }
  return found.policy === undefined && !found.refusal && !found.problem ? { key: text } : found;
}

const figure = (value: unknown) => (typeof value === 'number' && Number.isFinite(value) ? value : null);
const word = (value: unknown) => (typeof value === 'string' ? value : undefined);
