/** Rate limits that many programs share, decided in Redis or by a Sluicegate server. */
package io.sluicegate;
