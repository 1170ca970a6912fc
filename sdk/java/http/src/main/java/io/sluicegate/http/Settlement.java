package io.sluicegate.http;

import io.sluicegate.Decision;

/**
 * The corrections of a settlement, in permits.
 *
 * @param refunded given back
 * @param taken taken in addition
 * @param missing what could not be taken, as it was not there; it is not owed
 * @param decision that of the correction; where nothing was to be corrected, what is left
 */
public record Settlement(long refunded, long taken, long missing, Decision decision) {}
