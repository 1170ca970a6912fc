/** Sends drafts of policies with a log, to see what they would do to its requests. */

import { ApiFailure, type Schema, api, unwrap } from '../lib/api.ts';
import { type WhatIfRequest, firstLine } from './whatif.ts';

export type Compared = Schema['Compared'];

/** The server's limit. */
export const LOG_BYTES_MAX = 32 * 2 ** 20;
const TYPE = 'application/x-sluicegate-whatif';

/** Sends drafts with a log; the log itself only once, while the server keeps it. */
export class WhatIfClient {
  #log: Blob;
  #id: string | undefined;

  constructor(log: Blob) {
    this.#log = log;
  }

  async compare(request: WhatIfRequest, signal: AbortSignal): Promise<Compared> {
    const compared = await this.#send(request, signal).catch((error) => {
      if (!(error instanceof ApiFailure && error.code === 'log_gone')) throw error;
      // The server has lost the log, for example by a restart.
      this.#id = undefined;
      return this.#send(request, signal);
    });
    this.#id = compared.log_id;
    return compared;
  }

  #send(request: WhatIfRequest, signal: AbortSignal): Promise<Compared> {
    const first = { ...(firstLine(request) as object), ...(this.#id && { log_id: this.#id }) };
    const body = new Blob([`${JSON.stringify(first)}\n`, ...(this.#id ? [] : [this.#log])], { type: TYPE });
    return unwrap(
      api.POST('/v1/admin/apps/{app}/whatif', {
        params: { path: { app: request.app } },
        headers: { 'content-type': TYPE },
        body: body as unknown as string,
        bodySerializer: (body) => body as unknown as Blob,
        signal,
      }),
    );
  }
}
