package io.sluicegate.testing;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;

/** The lines that the SDK logs while a test runs. */
public final class LogLines extends Handler implements AutoCloseable {
    private final Logger logger = Logger.getLogger("io.sluicegate");
    private final Level before = logger.getLevel();
    private final List<String> lines = new CopyOnWriteArrayList<>();

    public LogLines() {
        logger.setLevel(Level.INFO);
        logger.addHandler(this);
    }

    @Override
    public void publish(LogRecord line) {
        lines.add(line.getLevel() + " " + line.getMessage());
    }

    /** {@return the lines that contain a text} */
    public List<String> with(String text) {
        return lines.stream().filter(line -> line.contains(text)).toList();
    }

    public List<String> all() {
        return lines;
    }

    @Override
    public void flush() {
        // Nothing is held back.
    }

    @Override
    public void close() {
        logger.removeHandler(this);
        logger.setLevel(before);
    }
}
