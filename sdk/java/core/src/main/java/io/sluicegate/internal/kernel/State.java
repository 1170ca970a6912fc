package io.sluicegate.internal.kernel;

/** What one rule remembers of one key. A state may be changed in place by its algorithm. */
public interface State {
    /** {@return a state that can be changed without changing this one} */
    State copy();
}
