package io.sluicegate.internal.engine;

/** A budget: a policy, or a limit that the program brings along, and a key. */
record Place(String policy, String key) {}
