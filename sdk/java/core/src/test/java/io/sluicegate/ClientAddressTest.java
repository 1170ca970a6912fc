package io.sluicegate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.internal.json.Json;
import io.sluicegate.testing.Checkout;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The table that is the same for all SDKs. */
class ClientAddressTest {
    @TestFactory
    List<DynamicTest> the_client_is_the_one_that_trusted_proxies_name() {
        Map<?, ?> table = (Map<?, ?>) Json.read(Checkout.bytes("spec/client-addresses.json"));
        ClientAddress trusting = ClientAddress.behind(((List<?>) table.get("trusted")).toArray(String[]::new));
        List<DynamicTest> tests = new ArrayList<>();
        for (Object each : (List<?>) table.get("cases")) {
            Map<?, ?> one = (Map<?, ?>) each;
            String field = (String) one.get("field");
            tests.add(DynamicTest.dynamicTest(field + " " + one.get("name"),
                () -> assertEquals(one.get("key"), trusting.from(field).key((String) one.get("peer"), value(one)))));
        }
        assertTrue(tests.size() >= 96);
        return tests;
    }

    private static String value(Map<?, ?> one) {
        List<String> lines = new ArrayList<>();
        ((List<?>) one.get("lines")).forEach(line -> lines.add((String) line));
        if (one.get("filler") instanceof Map<?, ?> filler) {
            lines.set(0, lines.get(0) + ((String) filler.get("text")).repeat(((Number) filler.get("times")).intValue()));
        }
        return lines.isEmpty() ? null : String.join(",", lines);
    }
}
