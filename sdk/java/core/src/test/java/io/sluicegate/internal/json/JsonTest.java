package io.sluicegate.internal.json;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
    @Test
    void values_are_those_of_the_platform() {
        assertEquals(Map.of("a", List.of(1L, -2L, 0L, true, false), "b", Map.of(), "c", List.of()),
            Json.read(" { \"a\" : [1, -2,0 ,true,false],\t\"b\":{},\r\n\"c\":[ ] } "));
        assertNull(Json.read("null"));
        assertEquals("a\"\\/\b\f\n\r\té😀", Json.read("\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\\ud83d\\ude00\""));
        assertEquals("é😀", Json.read("\"é😀\""));
    }

    @Test
    void integers_are_exact_and_other_numbers_are_doubles() {
        assertEquals(9_007_199_254_740_993L, Json.read("9007199254740993"));
        assertEquals(999_999_999_999_999_999L, Json.read("999999999999999999"));
        assertEquals(1e18, Json.read("1000000000000000000"));
        assertEquals(1.0, Json.read("1.0"));
        assertEquals(1e300, Json.read("1E+300"));
        assertEquals(-25.0, Json.read("-2.5e1"));
    }

    @Test
    void what_is_quoted_is_read_again() {
        String all = "a\"\\\b\n\u0001é😀";
        assertEquals(all, Json.read(Json.write(all)));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        "", " ", "{", "[", "[1", "[1,]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "1 2", "{}}", "tru", "nul", "01", "1.", ".5", "+1",
        "1e", "-", "NaN", "'a'", "\"a", "\"\\", "\"\\x\"", "\"\\u12g4\"", "\"\\u12\"", "\"\n\"", "\"\u0001\"",
    })
    void other_texts_are_refused(String text) {
        assertThrows(JsonException.class, () -> Json.read(text), text);
    }

    @Test
    void bytes_that_are_not_utf_8_are_refused() {
        assertThrows(JsonException.class, () -> Json.read(new byte[] {'"', (byte) 0xff, '"'}));
    }

    @Test
    void a_text_of_any_depth_and_length_is_read_or_refused() {
        assertEquals(64, depth(Json.read("[".repeat(64) + "]".repeat(64))));
        assertThrows(JsonException.class, () -> Json.read("[".repeat(1_000_000)));
        assertEquals(1_000_000, ((String) Json.read("\"" + "x".repeat(1_000_000) + "\"")).length());
        assertEquals(1e300, (Double) Json.read("1" + "0".repeat(300) + "." + "0".repeat(1_000_000)));
    }

    private static int depth(Object value) {
        int depth = 0;
        for (Object inner = value; inner instanceof List<?> list; inner = list.isEmpty() ? null : list.get(0)) {
            depth++;
        }
        return depth;
    }
}
