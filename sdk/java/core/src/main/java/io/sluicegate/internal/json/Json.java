package io.sluicegate.internal.json;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * A strict reader of JSON (RFC 8259): a text becomes maps, lists, texts, {@link Boolean}s, {@link Num}s and
 * {@link #NULL}. Numbers keep their text, a field that is given twice is an error, and so is half of a surrogate pair.
 */
public final class Json {
    /** Objects and lists inside each other: what a policy document may have, and some room. */
    public static final int DEPTH_MAX = 16;
    /** The value {@code null}. */
    public static final Object NULL = new Object() {
        @Override
        public String toString() {
            return "null";
        }
    };

    private final String text;
    private int pos;

    private Json(String text) {
        this.text = text;
    }

    /**
     * A number as it was written.
     *
     * @param text its text
     */
    public record Num(String text) {
        /** {@return whether it is written in digits only} */
        public boolean isWhole() {
            return text.chars().allMatch(c -> c >= '0' && c <= '9');
        }

        @Override
        public String toString() {
            return text;
        }
    }

    /**
     * {@return the value of this text}
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
     * {@return the value of this text}
     *
     * @throws JsonException if it is not JSON
     */
    public static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.blanks();
        if (json.pos < text.length()) {
            throw json.error("more after the value");
        }
        return value;
    }

    private JsonException error(String what) {
        return new JsonException(what + " at " + pos);
    }

    private void blanks() {
        while (pos < text.length() && " \t\r\n".indexOf(text.charAt(pos)) >= 0) {
            pos++;
        }
    }

    private char peek() {
        blanks();
        if (pos >= text.length()) {
            throw error("the text ends");
        }
        return text.charAt(pos);
    }

    private void expect(char wanted) {
        if (peek() != wanted) {
            throw error("expected `" + wanted + "`");
        }
        pos++;
    }

    private boolean takes(char wanted) {
        boolean found = peek() == wanted;
        pos += found ? 1 : 0;
        return found;
    }

    private Object value(int depth) {
        if (depth > DEPTH_MAX) {
            throw error("more than " + DEPTH_MAX + " objects and lists inside each other");
        }
        return switch (peek()) {
            case '{' -> object(depth);
            case '[' -> list(depth);
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", NULL);
            default -> number();
        };
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, pos)) {
            throw error("unknown word");
        }
        pos += word.length();
        return value;
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> fields = new LinkedHashMap<>();
        expect('{');
        if (takes('}')) {
            return fields;
        }
        do {
            if (peek() != '"') {
                throw error("expected a field");
            }
            String name = string();
            expect(':');
            if (fields.put(name, value(depth + 1)) != null) {
                throw error("field `" + name + "` twice");
            }
        } while (takes(','));
        expect('}');
        return fields;
    }

    private List<Object> list(int depth) {
        List<Object> values = new ArrayList<>();
        expect('[');
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
        pos++;
        while (true) {
            if (pos >= text.length()) {
                throw error("the text ends");
            }
            char c = text.charAt(pos++);
            if (c == '"') {
                return wholePairs(out.toString());
            }
            if (c < 0x20) {
                throw error("control character in a text");
            }
            out.append(c == '\\' ? escaped() : c);
        }
    }

    private char escaped() {
        if (pos >= text.length()) {
            throw error("the text ends");
        }
        char c = text.charAt(pos++);
        return switch (c) {
            case '"', '\\', '/' -> c;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> unicode();
            default -> throw error("unknown escape");
        };
    }

    private char unicode() {
        int code = 0;
        for (int i = 0; i < 4; i++) {
            int digit = pos < text.length() && text.charAt(pos) < 128 ? Character.digit(text.charAt(pos), 16) : -1;
            if (digit < 0) {
                throw error("expected four hexadecimal digits");
            }
            code = code * 16 + digit;
            pos++;
        }
        return (char) code;
    }

    private String wholePairs(String string) {
        for (int i = 0; i < string.length(); i++) {
            char c = string.charAt(i);
            boolean pair = Character.isHighSurrogate(c) && i + 1 < string.length()
                && Character.isLowSurrogate(string.charAt(i + 1));
            if (pair) {
                i++;
            } else if (Character.isSurrogate(c)) {
                throw error("half of a surrogate pair");
            }
        }
        return string;
    }

    private Num number() {
        int from = pos;
        skip('-');
        if (!skip('0') && digits() == 0) {
            throw error("expected a value");
        }
        if (skip('.') && digits() == 0) {
            throw error("expected digits");
        }
        if (skip('e') || skip('E')) {
            if (!skip('+')) {
                skip('-');
            }
            if (digits() == 0) {
                throw error("expected digits");
            }
        }
        return new Num(text.substring(from, pos));
    }

    private boolean skip(char wanted) {
        boolean found = pos < text.length() && text.charAt(pos) == wanted;
        pos += found ? 1 : 0;
        return found;
    }

    private int digits() {
        int from = pos;
        while (pos < text.length() && text.charAt(pos) >= '0' && text.charAt(pos) <= '9') {
            pos++;
        }
        return pos - from;
    }

    /** {@return a text as JSON, with its quotes} */
    public static String quote(String value) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
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
