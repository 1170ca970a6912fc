package io.sluicegate.internal.json;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * A reader and a writer of JSON (RFC 8259), as the JDK has none. A text becomes maps, lists, strings, {@link Boolean}s, nulls and numbers: a
 * {@link Long} if it is an integer of at most 18 digits, else a {@link Double}. Of members with one name the last one counts.
 */
public final class Json {
    /** The objects and lists inside each other; a deeper text could take more stack than a thread has. */
    private static final int DEPTH_MAX = 64;
    private static final Pattern NUMBER = Pattern.compile("(-?(?:0|[1-9][0-9]*))(\\.[0-9]+)?([eE][+-]?[0-9]+)?");
    private static final Pattern UNICODE = Pattern.compile("[0-9a-fA-F]{4}");
    private static final int LONG_CHARACTERS_MAX = 18;

    private final String text;
    private int pos;

    private Json(String text) {
        this.text = text;
    }

    /**
     * {@return the value of a text in UTF-8}
     *
     * @throws JsonException if it is not JSON
     */
    public static Object read(byte[] utf8) {
        try {
            return read(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString());
        } catch (CharacterCodingException e) {
            throw new JsonException("not UTF-8");
        }
    }

    /**
     * {@return the value of a text}
     *
     * @throws JsonException if it is not JSON
     */
    public static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.skipBlanks();
        if (json.pos < text.length()) {
            throw json.error("more after the value");
        }
        return value;
    }

    private JsonException error(String problem) {
        return new JsonException("not JSON: " + problem + " at " + pos);
    }

    private void skipBlanks() {
        while (pos < text.length() && " \t\r\n".indexOf(text.charAt(pos)) >= 0) {
            pos++;
        }
    }

    private char next() {
        if (pos >= text.length()) {
            throw error("the text ends");
        }
        return text.charAt(pos++);
    }

    /** Skips a character behind blanks; returns whether it is there. */
    private boolean takes(char wanted) {
        skipBlanks();
        boolean found = pos < text.length() && text.charAt(pos) == wanted;
        pos += found ? 1 : 0;
        return found;
    }

    private void expect(char wanted) {
        if (!takes(wanted)) {
            throw error("expected `" + wanted + "`");
        }
    }

    private Object value(int depth) {
        if (depth > DEPTH_MAX) {
            throw error("more than " + DEPTH_MAX + " objects and lists inside each other");
        }
        if (takes('{')) {
            return object(depth);
        }
        if (takes('[')) {
            return list(depth);
        }
        return takes('"') ? string() : takes('t') ? word("rue", true) : takes('f') ? word("alse", false) : takes('n') ? word("ull", null) : number();
    }

    private Object word(String rest, Object value) {
        if (!text.startsWith(rest, pos)) {
            throw error("unknown word");
        }
        pos += rest.length();
        return value;
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> members = new LinkedHashMap<>();
        if (takes('}')) {
            return members;
        }
        do {
            expect('"');
            String name = string();
            expect(':');
            members.put(name, value(depth + 1));
        } while (takes(','));
        expect('}');
        return members;
    }

    private List<Object> list(int depth) {
        List<Object> values = new ArrayList<>();
        if (takes(']')) {
            return values;
        }
        do {
            values.add(value(depth + 1));
        } while (takes(','));
        expect(']');
        return values;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        for (char c = next(); c != '"'; c = next()) {
            if (c < 0x20) {
                throw error("control character in a string");
            }
            out.append(c == '\\' ? escaped() : c);
        }
        return out.toString();
    }

    private char escaped() {
        char c = next();
        int place = "bfnrt\"\\/".indexOf(c);
        if (place >= 0) {
            return "\b\f\n\r\t\"\\/".charAt(place);
        }
        Matcher digits = UNICODE.matcher(text).region(pos, text.length());
        if (c != 'u' || !digits.lookingAt()) {
            throw error("unknown escape");
        }
        pos += 4;
        return (char) Integer.parseInt(digits.group(), 16);
    }

    private Object number() {
        Matcher number = NUMBER.matcher(text).region(pos, text.length());
        if (!number.lookingAt()) {
            throw error("expected a value");
        }
        pos = number.end();
        boolean isLong = number.group(2) == null && number.group(3) == null && number.group().length() <= LONG_CHARACTERS_MAX;
        return isLong ? (Object) Long.valueOf(number.group()) : (Object) Double.valueOf(number.group());
    }

    /** {@return an object of these names and values, in their order; a value that is null is left out} */
    public static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> members = new LinkedHashMap<>();
        for (int place = 0; place < namesAndValues.length; place += 2) {
            if (namesAndValues[place + 1] != null) {
                members.put((String) namesAndValues[place], namesAndValues[place + 1]);
            }
        }
        return members;
    }

    /** {@return a value as JSON: a map, a list, a string, a number, a boolean or null} */
    public static String write(Object value) {
        if (value instanceof Map<?, ?> members) {
            return members.entrySet().stream().map(each -> quote((String) each.getKey()) + ":" + write(each.getValue()))
                .collect(Collectors.joining(",", "{", "}"));
        }
        if (value instanceof List<?> values) {
            return values.stream().map(Json::write).collect(Collectors.joining(",", "[", "]"));
        }
        return value instanceof String text ? quote(text) : String.valueOf(value);
    }

    private static String quote(String value) {
        StringBuilder out = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < 0x20) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }
}
