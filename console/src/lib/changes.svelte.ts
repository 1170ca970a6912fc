/** Counts changes that were made or taken back from outside of a page, so that pages read again. */
export const changes = $state({ count: 0 });
