package io.sluicegate;

/**
 * The permits of one rule of a policy, as header fields report it.
 *
 * @param rule the rule's name
 * @param limit the largest cost that it ever lets pass at once
 * @param windowUs the time in which its budget is filled, in µs; 0 if it has none
 * @param concurrent whether permits are held rather than used
 */
public record Quota(String rule, long limit, long windowUs, boolean concurrent) {}
