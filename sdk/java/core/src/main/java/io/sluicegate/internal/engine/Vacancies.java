package io.sluicegate.internal.engine;

import io.sluicegate.internal.kernel.Answer;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * Turns that were booked in Redis for callers that gave up while they were held. Those behind keep their turns, so a
 * vacant one goes to the next request of the same policy, key and cost. Times are µs.
 */
final class Vacancies {
    /** Turns that are kept; one more is lost, as if its caller had waited. */
    private static final int TURNS_MAX = 10_000;

    private final Map<Place, PriorityQueue<Turn>> turns = new HashMap<>();
    private int count;

    record Place(String policy, String key, long cost) {}

    /** A turn that comes at {@code dueUs}, as Redis granted it. */
    record Turn(Answer answer, long dueUs) {}

    synchronized void put(Place place, Turn turn, long nowUs) {
        if (count >= TURNS_MAX) {
            dropDue(nowUs);
        }
        if (count < TURNS_MAX) {
            turns.computeIfAbsent(place, at -> new PriorityQueue<>(Comparator.comparingLong(Turn::dueUs))).add(turn);
            count++;
        }
    }

    /** {@return the first turn that is due within so long, or null} */
    synchronized Turn take(Place place, long nowUs, long withinUs) {
        PriorityQueue<Turn> queue = turns.get(place);
        Turn first = null;
        while (queue != null && !queue.isEmpty() && (first == null || first.dueUs <= nowUs)) {
            if (queue.peek().dueUs - nowUs > withinUs) {
                return null;
            }
            first = queue.poll();
            count--;
        }
        if (queue != null && queue.isEmpty()) {
            turns.remove(place);
        }
        return first == null || first.dueUs <= nowUs ? null : first;
    }

    private void dropDue(long nowUs) {
        turns.values().forEach(queue -> {
            while (!queue.isEmpty() && queue.peek().dueUs <= nowUs) {
                queue.poll();
                count--;
            }
        });
        turns.values().removeIf(PriorityQueue::isEmpty);
    }
}
