/** Decides in Redis through Jedis. */
package io.sluicegate.jedis;
