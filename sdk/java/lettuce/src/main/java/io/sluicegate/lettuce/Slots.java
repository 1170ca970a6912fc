package io.sluicegate.lettuce;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Where keys are in a cluster. */
final class Slots {
    /** Slots of a cluster. */
    static final int COUNT = 16_384;
    private static final int POLYNOMIAL = 0x1021;

    private Slots() {}

    /** {@return the slot of a key: of what is in its first braces, if there is something} */
    static int of(byte[] key) {
        String text = new String(key, StandardCharsets.ISO_8859_1);
        int open = text.indexOf('{');
        int close = open < 0 ? -1 : text.indexOf('}', open);
        boolean isTagged = close > open + 1;
        int crc = 0;
        for (int place = isTagged ? open + 1 : 0; place < (isTagged ? close : key.length); place++) {
            crc ^= (key[place] & 0xff) << 8;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) == 0 ? crc << 1 : crc << 1 ^ POLYNOMIAL;
            }
        }
        return (crc & 0xffff) % COUNT;
    }

    /** Slots on end, and the address of the master that has them: HOST:PORT, without a host where it is that of the node that reports it. */
    record Range(int first, int last, String address) {}

    /** {@return the slots in a reply to CLUSTER SLOTS; entries that are none are left out} */
    static List<Range> read(List<?> reply) {
        List<Range> ranges = new ArrayList<>();
        for (Object each : reply) {
            if (each instanceof List<?> entry && entry.size() > 2 && entry.get(0) instanceof Long first && entry.get(1) instanceof Long last
                && 0 <= first && first <= last && last < COUNT && entry.get(2) instanceof List<?> master && master.size() > 1) {
                String host = master.get(0) instanceof byte[] name ? new String(name, StandardCharsets.UTF_8) : "";
                ranges.add(new Range(first.intValue(), last.intValue(), ("?".equals(host) ? "" : host) + ":" + master.get(1)));
            }
        }
        return ranges;
    }
}
