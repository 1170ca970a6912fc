package io.sluicegate.internal;

import java.util.Arrays;
import java.util.Locale;
import java.util.Optional;

/** Texts that go into errors and reports, also from outside. */
public final class Texts {
    /** The most characters of such a text: enough to show what is wrong, and no log is flooded. */
    public static final int CHARACTERS_MAX = 1024;
    /** The words for what decides if Redis answers and has no policies that can be read. */
    public static final String READ_BEFORE = "Redis decides by the policies that were read before";
    /** The verb of an acquire that has a wait, in errors. */
    public static final String ACQUIRE_WITH_MAX_WAIT = "acquire` with `max_wait";

    private Texts() {}

    /** {@return the text, cut with an ellipsis if it is longer than {@link #CHARACTERS_MAX}} */
    public static String truncate(String text) {
        if (text.length() <= CHARACTERS_MAX) {
            return text;
        }
        int end = CHARACTERS_MAX - 1;
        return text.substring(0, Character.isHighSurrogate(text.charAt(end - 1)) ? end - 1 : end) + "…";
    }

    /** {@return the constant whose name, in small letters, is a text} */
    public static <E extends Enum<E>> Optional<E> word(String text, E[] constants) {
        return Arrays.stream(constants).filter(each -> each.name().toLowerCase(Locale.ROOT).equals(text)).findFirst();
    }
}
