/** Decides in Redis through Lettuce. */
package io.sluicegate.lettuce;
