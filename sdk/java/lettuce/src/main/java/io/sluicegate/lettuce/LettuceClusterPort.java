package io.sluicegate.lettuce;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.SlotHash;
import io.sluicegate.AsyncRedisPort;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * Reaches a Redis Cluster through Lettuce, with one connection to each master that all threads share, and one that listens. It
 * finds the master of a key by itself: the cluster client of Lettuce sends a command again after a connection was lost, and would
 * charge twice. What a node refused without beginning it goes again ({@code MOVED}, {@code ASK}, {@code TRYAGAIN} and, with the
 * script loaded there, {@code NOSCRIPT}), at most three times a call and within its time.
 */
public final class LettuceClusterPort implements AsyncRedisPort {
    /** Maximum number of times a call is sent again that a node refused without beginning it. */
    private static final int REPEATS_MAX = 3;
    private static final long TRY_AGAIN_NANOS = TimeUnit.MILLISECONDS.toNanos(1);
    /** Nodes that are known at a time: as many as Redis advises a cluster to have at most. */
    private static final int NODES_MAX = 1000;
    /** A node without slots is left after this time: longer than any call lasts. */
    private static final long UNUSED_NANOS = TimeUnit.MINUTES.toNanos(1);
    /** Time that a node may take to name the owners of slots. */
    private static final long LOOK_NANOS = TimeUnit.SECONDS.toNanos(1);
    /** Shortest time between two such requests. */
    private static final long LOOK_AGAIN_MS = 100;
    /** Time between two checks that a node is listened to. */
    private static final long TICK_MS = 1000;
    private static final byte[] EVALSHA = ascii("EVALSHA");
    private static final byte[] SCRIPT = ascii("SCRIPT");
    private static final byte[][] SLOTS = {ascii("CLUSTER"), ascii("SLOTS")};

    private final RedisClient client;
    private final List<RedisURI> seeds;
    private final Map<String, Node> nodes = new ConcurrentHashMap<>();
    private final ReentrantLock changing = new ReentrantLock();
    /** The owner of each slot; null where it is not known. */
    private final AtomicReferenceArray<Node> owners = new AtomicReferenceArray<>(SlotHash.SLOT_COUNT);
    private final Semaphore lookWanted = new Semaphore(0);
    private final Thread thread;
    /** Loads the script where a node does not have it. */
    private volatile byte[][] load;
    private volatile String channel;
    private volatile Consumer<String> listener;
    private volatile boolean closed;

    private LettuceClusterPort(List<RedisURI> seeds) {
        this.seeds = List.copyOf(seeds);
        this.client = LettucePort.client(seeds.get(0));
        this.thread = new Thread(this::keep, "sluicegate-cluster");
        thread.setDaemon(true);
    }

    /**
     * Opens a port, and waits for the connections to the masters for 5 s at most. The cluster need not answer yet: it is tried again
     * until it does.
     *
     * @param seeds some of its nodes, as {@code redis://HOST:PORT} or {@code rediss://..}, one or more; the others are let in by the
     *     credentials of the first
     * @return the port, which a gate closes
     * @throws IllegalStateException if they are no cluster, or Lettuce is older than 7
     */
    public static LettuceClusterPort connect(String... seeds) {
        return connect(Arrays.stream(seeds).map(Addresses::parse).toList());
    }

    /**
     * Opens a port, and waits for the connections to the masters for 5 s at most. The cluster need not answer yet: it is tried again
     * until it does.
     *
     * @param seeds some of its nodes, one or more; the others are let in by the credentials of the first
     * @return the port, which a gate closes
     * @throws IllegalStateException if they are no cluster, or Lettuce is older than 7
     */
    public static LettuceClusterPort connect(List<RedisURI> seeds) {
        if (seeds.isEmpty()) {
            throw new IllegalArgumentException("a cluster is found by a node of it");
        }
        LettuceClusterPort port = new LettuceClusterPort(seeds);
        try {
            port.begin();
        } catch (IllegalStateException e) {
            port.close();
            throw e;
        }
        return port;
    }

    private void begin() {
        long until = System.nanoTime() + LettucePort.AWAIT_NANOS;
        try {
            seeds.forEach(this::nodeOf);
            // One that says nothing leaves time for the others.
            for (int tried = 0; tried < seeds.size(); tried++) {
                long now = System.nanoTime();
                if (nodeOf(seeds.get(tried)).port.awaitConnection(now + (until - now) / (seeds.size() - tried))) {
                    break;
                }
            }
            if (!look()) {
                System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING, noNode() + " yet");
            }
            for (Node node : nodes.values()) {
                node.port.awaitConnection(until);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        thread.start();
    }

    @Override
    public String address() {
        return LettucePort.address(seeds.get(0)) + " (cluster)";
    }

    private String noNode() {
        return "no node of the cluster of " + LettucePort.address(seeds.get(0)) + " is there";
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    /** A node and its connections. */
    private final class Node {
        final String address;
        final LettucePort port;
        private final RedisURI uri;
        /** Sends what goes to slots that move here. */
        private LettucePort asking;
        private volatile long usedAt = System.nanoTime();

        Node(String address) {
            this.address = address;
            int colon = address.lastIndexOf(':');
            this.uri = RedisURI.builder(seeds.get(0)).withHost(address.substring(0, colon))
                .withPort(Integer.parseInt(address.substring(colon + 1))).build();
            this.port = LettucePort.node(client, uri);
        }

        synchronized LettucePort asking() {
            if (asking == null) {
                asking = LettucePort.node(client, uri);
            }
            return asking;
        }

        synchronized void close() {
            port.close();
            if (asking != null) {
                asking.close();
            }
        }

        Reply begin(boolean asks, byte[]... command) {
            usedAt = System.nanoTime();
            return (asks ? asking() : port).begin(asks, command);
        }
    }

    private Node nodeOf(RedisURI seed) {
        return nodeAt(seed.getHost() + ":" + seed.getPort());
    }

    /** {@return the node at an address} */
    private Node nodeAt(String address) {
        Node node = nodes.get(address);
        if (node != null) {
            return node;
        }
        changing.lock();
        try {
            if (closed || nodes.size() >= NODES_MAX) {
                return nodes.values().iterator().next();
            }
            return nodes.computeIfAbsent(address, Node::new);
        } finally {
            changing.unlock();
        }
    }

    /** {@return the node that a node calls HOST:PORT; without a host it is at its own} */
    private Node nodeBeside(Node reporter, String address) {
        return nodeAt(address.startsWith(":") ? reporter.address.substring(0, reporter.address.lastIndexOf(':')) + address : address);
    }

    @Override
    public Object call(long timeoutNanos, byte[]... command) throws Failure, InterruptedException {
        return begin(timeoutNanos, command).await(timeoutNanos);
    }

    @Override
    public CompletableFuture<Object> send(long timeoutNanos, byte[]... command) {
        return begin(timeoutNanos, command).within(timeoutNanos);
    }

    private Reply begin(long timeoutNanos, byte[]... command) {
        Routed routed = new Routed(System.nanoTime() + timeoutNanos, command);
        if (Arrays.equals(command[0], SCRIPT)) {
            // It is loaded where a node turns out not to have it: while a slot moves that is not the one that the map names.
            load = command;
            routed.complete(null);
        } else {
            routed.toOwner();
        }
        return routed;
    }

    /** A command on its way to the node that executes it. */
    private final class Routed extends Reply {
        private final long until;
        private final byte[][] command;
        private final int slot;
        private Node node;
        private boolean asks;
        private int repeats;
        /** Set while a command is on its way, and when the time is over, so that nothing is sent after that. */
        private final AtomicBoolean sending = new AtomicBoolean();
        private volatile Reply sent;

        Routed(long until, byte[]... command) {
            this.until = until;
            this.command = command;
            this.slot = SlotHash.getSlot(command[Arrays.equals(command[0], EVALSHA) ? 3 : 1]);
        }

        void toOwner() {
            try {
                asks = false;
                node = ownerOf(slot);
                begin(command, this::answered);
            } catch (Failure e) {
                completeExceptionally(e);
            }
        }

        private void begin(byte[][] next, Consumer<Object> then) {
            if (!sending.compareAndSet(false, true)) {
                return;
            }
            Node to = node;
            if (until - System.nanoTime() <= 0) {
                completeExceptionally(new Failure("the deadline passed", false, true));
                return;
            }
            Reply reply = to.begin(asks, next);
            sent = reply;
            if (isDone()) {
                reply.expire();
            }
            reply.whenComplete((value, problem) -> {
                if (problem == null) {
                    sending.set(false);
                    then.accept(value);
                    return;
                }
                lookSoon();
                // What the node's own connection has shown counts: that other nodes answer is no sign of this one.
                completeExceptionally(problem);
            });
        }

        @Override
        void expire() {
            if (sending.compareAndSet(false, true)) {
                completeExceptionally(new Failure("the deadline passed", false, true));
                return;
            }
            Reply last = sent;
            if (last != null) {
                last.expire();
            }
            // A command is just being sent, unless that has ended it.
            completeExceptionally(new Failure("the deadline passed", true, true));
        }

        private void answered(Object reply) {
            String[] words = reply instanceof ReplyError error && repeats++ < REPEATS_MAX ? error.text().split(" ") : new String[] {""};
            switch (words[0]) {
                case "MOVED", "ASK" -> {
                    if (words.length < 3 || !words[2].matches(".*:[0-9]{1,5}")) {
                        complete(reply);
                        return;
                    }
                    node = nodeBeside(node, words[2]);
                    asks = words[0].equals("ASK");
                    if (!asks) {
                        owners.set(slot, node);
                        lookSoon();
                    }
                    begin(command, this::answered);
                }
                case "TRYAGAIN" -> after(TRY_AGAIN_NANOS).thenRun(this::toOwner);
                case "NOSCRIPT" -> {
                    if (load == null) {
                        complete(reply);
                        return;
                    }
                    boolean asked = asks;
                    asks = false;
                    begin(load, loaded -> {
                        asks = asked;
                        begin(command, this::answered);
                    });
                }
                case "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING" -> {
                    lookSoon();
                    complete(reply);
                }
                default -> complete(reply);
            }
        }
    }

    private Node ownerOf(int slot) throws Failure {
        Node owner = owners.get(slot);
        return owner != null ? owner : anyNode();
    }

    // Any one says whose it is.
    private Node anyNode() throws Failure {
        List<Node> there = nodes.values().stream().filter(node -> node.port.isConnected()).toList();
        if (there.isEmpty()) {
            lookSoon();
            throw new Failure(noNode(), false, false);
        }
        return there.get(ThreadLocalRandom.current().nextInt(there.size()));
    }

    private void lookSoon() {
        if (lookWanted.availablePermits() == 0) {
            lookWanted.release();
        }
    }

    /** The thread of a port: it looks who has which slots when something has changed, and sees to it that a node is listened to. */
    private void keep() {
        while (!closed) {
            try {
                if (lookWanted.tryAcquire(TICK_MS, TimeUnit.MILLISECONDS)) {
                    lookWanted.drainPermits();
                    look();
                    Thread.sleep(LOOK_AGAIN_MS);
                }
                keepListening();
            } catch (InterruptedException e) {
                return;
            } catch (RuntimeException e) {
                System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING, "following the cluster failed", e);
            }
        }
    }

    /** Asks a node who has which slots; returns whether one answered. */
    private boolean look() throws InterruptedException {
        seeds.forEach(this::nodeOf);
        List<Node> all = new ArrayList<>(nodes.values());
        Collections.shuffle(all);
        boolean answered = false;
        for (Node node : all) {
            try {
                Object reply = node.port.call(LOOK_NANOS, SLOTS);
                if (reply instanceof List<?> list && take(node, Slots.read(list))) {
                    return true;
                }
                if (reply instanceof ReplyError error && error.text().contains("cluster support disabled")) {
                    throw new IllegalStateException(node.address + " is no node of a cluster");
                }
                // One that may not say it still says whose a slot is that is asked for there.
                answered = true;
            } catch (Failure e) {
                // The next one may know it.
            }
        }
        return answered;
    }

    private boolean take(Node reporter, List<Slots.Range> ranges) {
        Set<Node> masters = new HashSet<>();
        for (Slots.Range range : ranges) {
            Node node = nodeBeside(reporter, range.address());
            masters.add(node);
            for (int slot = range.first(); slot <= range.last(); slot++) {
                owners.set(slot, node);
            }
        }
        long now = System.nanoTime();
        Set<String> kept = new HashSet<>(seeds.stream().map(LettucePort::address).toList());
        nodes.values().removeIf(node -> {
            boolean unused = !masters.isEmpty() && !masters.contains(node) && !kept.contains(node.address) && now - node.usedAt > UNUSED_NANOS;
            if (unused) {
                forget(node);
            }
            return unused;
        });
        return !masters.isEmpty();
    }

    private void forget(Node node) {
        for (int slot = 0; slot < SlotHash.SLOT_COUNT; slot++) {
            owners.compareAndSet(slot, node, null);
        }
        node.close();
    }

    @Override
    public void subscribe(String channel, Consumer<String> listener) {
        this.listener = listener;
        this.channel = channel;
        keepListening();
    }

    // A message goes to all nodes, so one is listened to; another one while that is away.
    private void keepListening() {
        if (channel == null || closed || nodes.values().stream().anyMatch(node -> node.port.isListening())) {
            return;
        }
        nodes.values().stream().filter(node -> node.port.isConnected()).findFirst().ifPresent(node -> node.port.subscribe(channel, listener));
    }

    @Override
    public void close() {
        closed = true;
        thread.interrupt();
        LettucePort.shutdown(client);
    }
}
