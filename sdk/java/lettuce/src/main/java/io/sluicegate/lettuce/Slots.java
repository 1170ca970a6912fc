package io.sluicegate.lettuce;

import io.lettuce.core.cluster.SlotHash;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** The masters of slots, as a node of a cluster reports them. */
final class Slots {
    private Slots() {}

    /** Slots on end, and the address of the master that has them: HOST:PORT, without a host where it is that of the node that reports it. */
    record Range(int first, int last, String address) {}

    /** {@return the slots in a reply to CLUSTER SLOTS; entries that are none are left out} */
    static List<Range> read(List<?> reply) {
        List<Range> ranges = new ArrayList<>();
        for (Object each : reply) {
            if (each instanceof List<?> entry && entry.size() > 2 && entry.get(0) instanceof Long first && entry.get(1) instanceof Long last
                && 0 <= first && first <= last && last < SlotHash.SLOT_COUNT && entry.get(2) instanceof List<?> master && master.size() > 1) {
                String host = master.get(0) instanceof byte[] name ? new String(name, StandardCharsets.UTF_8) : "";
                ranges.add(new Range(first.intValue(), last.intValue(), ("?".equals(host) ? "" : host) + ":" + master.get(1)));
            }
        }
        return ranges;
    }
}
