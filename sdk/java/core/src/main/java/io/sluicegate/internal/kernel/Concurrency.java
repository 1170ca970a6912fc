package io.sluicegate.internal.kernel;

import java.util.ArrayList;
import java.util.List;

/** Permits are held by name until they are released or their time is over; at most 10,000, as its limit is. */
final class Concurrency extends Primitive {
    private final long limit;
    private final long ttlUs;

    Concurrency(double[] numbers) {
        limit = (long) numbers[0];
        ttlUs = (long) numbers[1];
        if (limit < 1 || ttlUs < 1) {
            throw new IllegalArgumentException("permits without a limit or a ttl");
        }
    }

    private record Holder(PermitId id, long lapses, long cost) {}

    /** The holders in the order in which they lapse. */
    private static final class Holders implements State {
        final List<Holder> holders;

        Holders(List<Holder> holders) {
            this.holders = holders;
        }

        @Override
        public State copy() {
            return new Holders(new ArrayList<>(holders));
        }
    }

    private static List<Holder> held(State state) {
        return state == null ? List.of() : ((Holders) state).holders;
    }

    private static long heldAt(State state, long now) {
        long sum = 0;
        for (Holder holder : held(state)) {
            sum += holder.lapses > now ? holder.cost : 0;
        }
        return sum;
    }

    private static void forgetLapsed(State state, long now) {
        held(state).removeIf(holder -> holder.lapses <= now);
    }

    private static int placeOf(State state, PermitId id, long now) {
        List<Holder> holders = held(state);
        for (int place = 0; place < holders.size(); place++) {
            if (holders.get(place).id.equals(id) && holders.get(place).lapses > now) {
                return place;
            }
        }
        return -1;
    }

    // No permit lasts longer than the ttl from now.
    private boolean shorten(State state, long now) {
        List<Holder> holders = held(state);
        boolean shortened = false;
        for (int place = holders.size() - 1; place >= 0 && holders.get(place).lapses > now + ttlUs; place--) {
            Holder holder = holders.get(place);
            holders.set(place, new Holder(holder.id, now + ttlUs, holder.cost));
            shortened = true;
        }
        return shortened;
    }

    /** {@return whether a permit of this name is held} */
    boolean holds(State state, At at, PermitId id) {
        return placeOf(state, id, at.now()) >= 0;
    }

    /** {@return how many permits were given back, or 0 if none is held by this name} */
    long release(State state, At at, PermitId id) {
        int place = placeOf(state, id, at.now());
        if (place < 0) {
            return 0;
        }
        long released = held(state).remove(place).cost;
        forgetLapsed(state, at.now());
        return released;
    }

    /** {@return how many permits are held for another ttl, or 0 if none is held by this name} */
    long renew(State state, At at, PermitId id) {
        int place = placeOf(state, id, at.now());
        if (place < 0) {
            return 0;
        }
        long granted = held(state).remove(place).cost;
        held(state).add(new Holder(id, at.now() + ttlUs, granted));
        return granted;
    }

    @Override
    public long limit() {
        return limit;
    }

    @Override
    Outcome check(State state, At at, long cost, long maxWaitUs) {
        if (cost > limit) {
            return Outcome.NEVER;
        }
        long excess = heldAt(state, at.now()) + cost - limit;
        if (excess <= 0) {
            return Outcome.NOW;
        }
        long retry = 0;
        for (Holder holder : held(state)) {
            if (holder.lapses > at.now() && excess > 0) {
                excess -= holder.cost;
                retry = holder.lapses - at.now();
            }
        }
        return Outcome.retry(retry);
    }

    @Override
    State charge(State state, At at, long cost, PermitId permit) {
        Holders kept = state == null ? new Holders(new ArrayList<>()) : (Holders) state;
        forgetLapsed(kept, at.now());
        kept.holders.add(new Holder(permit, at.now() + ttlUs, cost));
        return kept;
    }

    @Override
    long available(State state, At at) {
        return Math.max(limit - heldAt(state, at.now()), 0);
    }

    @Override
    Status status(State state, At at) {
        List<Holder> holders = held(state);
        long last = holders.isEmpty() ? 0 : holders.get(holders.size() - 1).lapses;
        return new Status(available(state, at), Math.max(last - at.now(), 0));
    }

    // A permit is given back with `release`, by its id; there is nothing else to give back.
    @Override
    long refund(State state, At at, long cost) {
        return 0;
    }

    @Override
    boolean rewind(State state, At at) {
        return shorten(state, at.now());
    }

    @Override
    long used(State state, At at) {
        return heldAt(state, at.now());
    }

    // Usage of another algorithm is nobody's permit, so nothing is held.
    @Override
    State withUsed(At at, long used) {
        return null;
    }
}
