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

    /** {@return what the key of a header field is called in answers} */
    public static String header(String name) {
        return "header `" + name + "`";
    }

    /** {@return the answer of a filter} A key that is missing is logged, too, with its {@code source}: {@code key}, {@code address} or a header. */
    public static HttpAnswer answer(SluicegateException problem, String policy, String source) {
        if (problem.code() != ErrorCode.KEY_EMPTY) {
            return answer(problem);
        }
        String missing = source + ": is missing";
        MISSING.raise(policy + " " + missing, "a filter of policy `" + policy + "` answered a request with 400: " + missing);
        return HttpAnswer.badRequest(missing);
    }

    /** {@return the answer of a filter to a request that has the header field of its key more than once} */
    public static HttpAnswer repeated(String source) {
        return HttpAnswer.badRequest(source + ": is given more than once");
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
