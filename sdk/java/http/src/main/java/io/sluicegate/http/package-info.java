/** Asks a Sluicegate server. */
package io.sluicegate.http;
