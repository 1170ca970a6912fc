package io.sluicegate.internal.policy;

import io.sluicegate.internal.json.Json;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** The fields of one object of a document, each of which must be asked for. */
final class Fields {
    private final String path;
    private final Map<String, Object> values = new java.util.LinkedHashMap<>();
    private final Set<String> asked = new HashSet<>();

    Fields(String path, Object value) {
        this.path = path;
        if (!(value instanceof Map<?, ?> fields)) {
            throw new PolicyException(path, "expected an object");
        }
        fields.forEach((name, field) -> values.put((String) name, field));
    }

    String path() {
        return path;
    }

    String at(String field) {
        return path.isEmpty() ? field : path + "." + field;
    }

    boolean has(String field) {
        asked.add(field);
        return values.containsKey(field);
    }

    /** {@return the value, or null if there is no such field} */
    Object get(String field) {
        return has(field) ? values.get(field) : null;
    }

    Object need(String field) {
        if (!has(field)) {
            throw new PolicyException(at(field), "is missing");
        }
        return values.get(field);
    }

    Set<String> names() {
        return values.keySet();
    }

    /** Ends the reading: a field that nobody asked for is unknown. */
    void done() {
        for (String name : values.keySet()) {
            if (!asked.contains(name)) {
                throw new PolicyException(at(name), "unknown field");
            }
        }
    }

    String text(String field) {
        return text(at(field), need(field));
    }

    static String text(String path, Object value) {
        if (value instanceof String text) {
            return text;
        }
        throw new PolicyException(path, "expected a text");
    }

    /** A text of so many bytes of UTF-8 without control characters. */
    static String plain(String path, Object value, int most) {
        String text = text(path, value);
        int length = bytes(text);
        if (length < 1 || length > most || text.chars().anyMatch(c -> c < 0x20 || c >= 0x7f && c <= 0x9f)) {
            throw new PolicyException(path, "expected 1..=" + most + " bytes without control characters");
        }
        return text;
    }

    static int bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8).length;
    }

    static List<?> list(String path, Object value, int least, int most) {
        if (!(value instanceof List<?> list)) {
            throw new PolicyException(path, "expected a list");
        }
        if (list.size() < least || list.size() > most) {
            throw new PolicyException(path, list.size() + " elements are outside " + least + "..=" + most);
        }
        return list;
    }

    long whole(String field, long least, long most) {
        return whole(at(field), need(field), least, most);
    }

    long whole(String field, long least, long most, long otherwise) {
        return has(field) ? whole(field, least, most) : otherwise;
    }

    /** {@return a permit count that another one bounds} */
    long within(String field, long most, long otherwise) {
        long value = whole(field, 0, Values.PERMITS_MAX, otherwise);
        if (value > most) {
            throw new PolicyException(at(field), "`" + value + "` is outside 0..=" + most);
        }
        return value;
    }

    static long whole(String path, Object value, long least, long most) {
        if (value instanceof Json.Num number && number.isWhole()) {
            long whole = Values.digits(number.text());
            if (whole >= least && whole <= most) {
                return whole;
            }
        }
        boolean integer = value instanceof Json.Num number && number.text().matches("-?[1-9][0-9]*|0");
        throw new PolicyException(path, "`" + value + "` is " + (integer ? "outside " + least + "..=" + most
            : "not a whole number from " + least + " to " + most));
    }
}
