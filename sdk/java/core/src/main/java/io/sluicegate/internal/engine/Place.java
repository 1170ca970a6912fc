package io.sluicegate.internal.engine;

import io.sluicegate.internal.policy.Key;

/** A budget: a policy, or a limit that the program brings along, and a key. */
record Place(String policy, Key key) {}
