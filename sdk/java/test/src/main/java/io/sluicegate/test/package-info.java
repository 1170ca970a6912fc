/** Gates for tests. */
package io.sluicegate.test;
