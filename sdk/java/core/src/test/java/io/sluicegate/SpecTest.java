package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.internal.json.Json;
import io.sluicegate.testing.Checkout;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.junit.jupiter.api.Test;

class SpecTest {
    @Test
    void the_script_is_that_of_the_specification() throws IOException {
        try (InputStream in = SpecTest.class.getResourceAsStream("/io/sluicegate/decide.lua")) {
            assertArrayEquals(Checkout.bytes("spec/redis/decide.lua"), in.readAllBytes(), "core/pom.xml packs the script");
        }
    }

    @Test
    void errors_are_those_of_the_specification() {
        List<String> wanted = new ArrayList<>();
        for (Object each : (List<?>) Json.read(Checkout.bytes("spec/errors.json"))) {
            wanted.add(((Map<?, ?>) each).get("name") + " " + ((Map<?, ?>) each).get("text"));
        }
        List<String> own = new ArrayList<>();
        for (ErrorCode code : ErrorCode.values()) {
            own.add(code.name().toLowerCase(Locale.ROOT) + " " + code.text());
        }
        assertEquals(wanted, own);
    }
}
