/**
 * Rate limits that many programs share, decided in Redis or by a Sluicegate server.
 *
 * <p>Arguments must not be null, here and in the other packages, unless a method states otherwise; a null one is refused with a
 * {@link java.lang.NullPointerException} before anything is sent.
 */
package io.sluicegate;
