/** Limits requests to applications of WebFlux. */
package io.sluicegate.webflux;
