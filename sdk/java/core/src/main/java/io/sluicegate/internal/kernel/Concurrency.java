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

    @Override
    long limit() {
        return limit;
    }

    @Override
    State fresh(long now) {
        return new Holders(new ArrayList<>());
    }

    // Usage of another algorithm has no ids of permits, so nothing is held.
    @Override
    State withUsed(long now, long till, long used) {
        return null;
    }

    /** {@return the same permits under these rules: none lasts longer than the ttl from now} */
    Holders taken(Holders before, long now) {
        Holders taken = new Holders(new ArrayList<>(before.holders));
        taken.rewind(now);
        return taken;
    }

    private record Holder(PermitId id, long lapses, long cost) {}

    /** The holders in the order in which they lapse. */
    final class Holders extends State {
        private final List<Holder> holders;

        private Holders(List<Holder> holders) {
            this.holders = holders;
        }

        @Override
        State copy() {
            return new Holders(new ArrayList<>(holders));
        }

        private int placeOf(PermitId id, long now) {
            for (int place = 0; place < holders.size(); place++) {
                if (holders.get(place).id.equals(id) && holders.get(place).lapses > now) {
                    return place;
                }
            }
            return -1;
        }

        /** {@return whether a permit of this name is held} */
        boolean holds(PermitId id, long now) {
            return placeOf(id, now) >= 0;
        }

        /** {@return how many permits were given back, or 0 if none is held by this name} */
        long release(PermitId id, long now) {
            int place = placeOf(id, now);
            return place < 0 ? 0 : holders.remove(place).cost;
        }

        /** {@return how many permits are held for another ttl, or 0 if none is held by this name} */
        long renew(PermitId id, long now) {
            long cost = release(id, now);
            if (cost > 0) {
                holders.add(new Holder(id, now + ttlUs, cost));
            }
            return cost;
        }

        @Override
        Outcome check(long now, long cost, long maxWaitUs) {
            if (cost > limit) {
                return Outcome.NEVER;
            }
            long excess = used(now) + cost - limit;
            if (excess <= 0) {
                return Outcome.NOW;
            }
            long retry = 0;
            for (Holder holder : holders) {
                if (holder.lapses > now && excess > 0) {
                    excess -= holder.cost;
                    retry = holder.lapses - now;
                }
            }
            return new Outcome(false, retry);
        }

        @Override
        void charge(long now, long cost, PermitId permit) {
            holders.removeIf(holder -> holder.lapses <= now);
            holders.add(new Holder(permit, now + ttlUs, cost));
        }

        @Override
        long available(long now) {
            return Math.max(limit - used(now), 0);
        }

        @Override
        long resetAfterUs(long now) {
            return holders.isEmpty() ? 0 : Math.max(holders.get(holders.size() - 1).lapses - now, 0);
        }

        // A permit is given back with `release`, by its id; there is nothing else to give back.
        @Override
        long refund(long now, long cost) {
            return 0;
        }

        @Override
        boolean rewind(long now) {
            boolean shortened = false;
            for (int place = holders.size() - 1; place >= 0 && holders.get(place).lapses > now + ttlUs; place--) {
                Holder holder = holders.get(place);
                holders.set(place, new Holder(holder.id, now + ttlUs, holder.cost));
                shortened = true;
            }
            return shortened;
        }

        @Override
        long used(long now) {
            return holders.stream().filter(holder -> holder.lapses > now).mapToLong(Holder::cost).sum();
        }
    }
}
