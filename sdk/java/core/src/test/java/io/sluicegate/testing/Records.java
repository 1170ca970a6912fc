package io.sluicegate.testing;

import io.sluicegate.internal.json.Json;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** The records of policies.json, which servers would publish of policies.yaml. */
public final class Records {
    private Records() {}

    /** The whole file. */
    public static String file() {
        try (InputStream in = Records.class.getResourceAsStream("/policies.json")) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The record of a policy, with other members: names and values, of which null removes the member. */
    public static String of(String policy, Object... changes) {
        Map<String, Object> record = new LinkedHashMap<>();
        ((Map<?, ?>) ((Map<?, ?>) Json.read(file())).get(policy)).forEach((name, value) -> record.put((String) name, value));
        for (int place = 0; place < changes.length; place += 2) {
            record.put((String) changes[place], changes[place + 1]);
            record.remove(changes[place], null);
        }
        return Json.write(record);
    }
}
