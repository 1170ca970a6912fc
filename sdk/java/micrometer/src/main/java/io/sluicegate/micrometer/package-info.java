/** Decisions as metrics of Micrometer. */
package io.sluicegate.micrometer;
