package io.sluicegate.lettuce;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Where keys are in a cluster. */
final class Slots {
    /** Slots of a cluster. */
    static final int COUNT = 16_384;
    private static final int POLYNOMIAL = 0x1021;
    private static final int[] TABLE = table();

    private Slots() {}

    private static int[] table() {
        int[] table = new int[256];
        for (int value = 0; value < table.length; value++) {
            int crc = value << 8;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) == 0 ? crc << 1 : crc << 1 ^ POLYNOMIAL;
            }
            table[value] = crc & 0xffff;
        }
        return table;
    }

    /** {@return the slot of a key: of what is in its first braces, if there is something} */
    static int of(byte[] key) {
        int from = 0;
        int to = key.length;
        int open = indexOf(key, '{', 0);
        int close = open < 0 ? -1 : indexOf(key, '}', open);
        if (close > open + 1) {
            from = open + 1;
            to = close;
        }
        int crc = 0;
        for (int place = from; place < to; place++) {
            crc = (crc << 8 ^ TABLE[(crc >> 8 ^ key[place]) & 0xff]) & 0xffff;
        }
        return crc % COUNT;
    }

    private static int indexOf(byte[] key, char wanted, int from) {
        for (int place = from; place < key.length; place++) {
            if (key[place] == wanted) {
                return place;
            }
        }
        return -1;
    }

    /** Slots on end, and the address of the master that has them: HOST:PORT, without a host where it is that of the node that says it. */
    record Range(int first, int last, String address) {}

    /** {@return what a reply to CLUSTER SLOTS says; entries that are none are left out} */
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
