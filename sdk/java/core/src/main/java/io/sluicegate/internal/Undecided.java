package io.sluicegate.internal;

import io.sluicegate.ErrorCode;
import io.sluicegate.HttpAnswer;
import io.sluicegate.SluicegateException;

/** Requests of strangers without a decision: they get an answer that names nothing, and the log gets the reason. */
public final class Undecided {
    /** One for the process: filters are many, and their log is one. */
    private static final Alarm MISTAKES = new Alarm();
    private static final Alarm MISSING = new Alarm();
    private static final int SERVER_ERROR = 500;

    private Undecided() {}

    /** {@return the answer of a filter} A key that is missing is logged, too, with the {@code header} that it comes from, if it comes from one. */
    public static HttpAnswer answer(SluicegateException problem, String policy, String header) {
        if (problem.code() == ErrorCode.KEY_EMPTY) {
            String missing = header == null ? "a key" : "`" + header + "`";
            MISSING.raise(policy + " " + missing, "a filter of policy `" + policy + "` answered a request without " + missing + " with 400");
        }
        return answer(problem);
    }

    /** {@return the answer to a request without a decision} A mistake of the program is logged, once a minute; what the gate notices it logs itself. */
    public static HttpAnswer answer(SluicegateException problem) {
        HttpAnswer answer = HttpAnswer.of(problem);
        if (answer.status() == SERVER_ERROR) {
            MISTAKES.raise(problem.getMessage(), "a request was answered with 500: " + problem.getMessage());
        }
        return answer;
    }
}
