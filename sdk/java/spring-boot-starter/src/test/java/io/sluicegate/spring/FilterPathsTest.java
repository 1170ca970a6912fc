package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.http.server.PathContainer;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** The spellings of a path that a pattern of a filter matches. */
class FilterPathsTest {
    /** Paths without anything to decode or to leave out. */
    private static final List<String> PLAIN = List.of("/", "/pastes", "/pastes/1", "/pastes/1/2", "/past");

    private static final List<String> PATTERNS = List.of("/", "/*", "/**", "/pastes", "/pastes/", "/pastes/*", "/pastes/**", "/pastes/{id}", "/pastes/*/2");

    private static boolean match(String pattern, String path) {
        return FilterPaths.match(List.of(PathPatternParser.defaultInstance.parse(pattern)), path);
    }

    @Test
    void a_filter_matches_what_its_pattern_matches() {
        for (String text : PATTERNS) {
            PathPattern pattern = PathPatternParser.defaultInstance.parse(text);
            for (String path : PLAIN) {
                assertEquals(pattern.matches(PathContainer.parsePath(path)), match(text, path), text + " " + path);
            }
        }
    }

    @Test
    void the_items_of_a_collection_are_not_the_collection() {
        for (String path : List.of("/pastes", "//pastes", "/x/../pastes", "/pastes;v=1", "/%70astes", "/%2fpastes")) {
            assertTrue(!match("/pastes/*", path) && !match("/pastes/{id}", path) && match("/pastes", path) && match("/pastes/**", path), path);
        }
    }

    @Test
    void a_slash_at_the_end_evades_no_filter() {
        for (String end : List.of("/", "//", "/.", "/x/..", ";v=1/", "/;v=1", "%2f", "%5c")) {
            for (String pattern : List.of("/pastes", "/pastes/", "/pastes/*", "/pastes/**")) {
                assertTrue(match(pattern, "/pastes" + end), pattern + " " + end);
            }
            for (String pattern : List.of("/pastes/*", "/pastes/{id}", "/pastes/1")) {
                assertTrue(match(pattern, "/pastes/1" + end), pattern + " 1" + end);
            }
        }
        for (String root : List.of("", "/", "//", "/.", "/x/..", "/;v=1")) {
            assertTrue(match("/", root) && match("/**", root), root);
        }
    }
}
