/**
 * Rate limits that many programs share, decided in Redis or by a Sluicegate server.
 *
 * <p>Arguments must not be null, here and in the other packages, unless a method says otherwise; a null one is refused with a
 * {@link java.lang.NullPointerException} before anything is asked.
 */
package io.sluicegate;
