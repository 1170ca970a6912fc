package io.sluicegate.http;

import io.sluicegate.Decision;
import java.util.List;

/**
 * The answer to checks that are charged together or not at all.
 *
 * @param allowed whether all passed; if not, nothing was charged
 * @param refused the place of the check that refused, from 0; {@link #NONE} if all passed
 * @param decisions those of all checks in their order, or of the one that refused; without quotas
 */
public record AtomicAnswer(boolean allowed, int refused, List<Decision> decisions) {
    /** No check refused. */
    public static final int NONE = -1;
}
