package io.sluicegate.internal;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class RequestKeysTest {
    @Test
    void a_long_key_is_the_text_of_its_hash() {
        assertEquals("", RequestKeys.usable(""));
        assertEquals("", RequestKeys.usable(null));
        assertEquals("a".repeat(1024), RequestKeys.usable("a".repeat(1024)));
        assertEquals("sha256:4a82297889eb505cf6b5cbdf69977afab4632d6557539782f657bd7dc78091a5", RequestKeys.usable("a".repeat(1025)));
    }
}
