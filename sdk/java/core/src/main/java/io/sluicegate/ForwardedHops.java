package io.sluicegate;

import java.util.Locale;

/** Texts of the addresses that proxies wrote in a field, read from the right: what a client wrote is to the left of them. */
final class ForwardedHops {
    /** As at servers: no request passes more proxies. */
    private static final int HOPS_MAX = 64;
    private static final String PUNCTUATION_OF_NAMES = "!#$%&'*+-.^_`|~";

    private final String list;
    /** True if each address is in an element of RFC 7239. */
    private final boolean hasElements;
    /** The place behind what was not read yet; -1 if all was. */
    private int end;
    private int count;

    ForwardedHops(String list, boolean hasElements) {
        this.list = list == null ? "" : list;
        this.hasElements = hasElements;
        this.end = list == null ? -1 : list.length();
    }

    /** {@return the text of the next address, which may be anything; null if there is none} */
    String next() {
        if (end < 0 || count == HOPS_MAX) {
            return null;
        }
        count++;
        int comma = hasElements ? lastDivider() : list.lastIndexOf(',', end - 1);
        String text = list.substring(comma + 1, end).trim();
        end = comma;
        return hasElements ? new Element(text).node() : text;
    }

    /** {@return where the last comma outside of quotes is, -1 without one} Read from the right, so that a quote of a client changes nothing behind it. */
    private int lastDivider() {
        boolean isQuoted = false;
        for (int place = end - 1; place >= 0; place--) {
            char c = list.charAt(place);
            if (c == '"' && !(isQuoted && isEscaped(place))) {
                isQuoted = !isQuoted;
            } else if (c == ',' && !isQuoted) {
                return place;
            }
        }
        return -1;
    }

    private boolean isEscaped(int place) {
        int first = place;
        while (first > 0 && list.charAt(first - 1) == '\\') {
            first--;
        }
        return (place - first) % 2 == 1;
    }

    /** One element: parameters with semicolons between them. */
    private static final class Element {
        private final String text;
        private int place;

        Element(String text) {
            this.text = text;
        }

        /** {@return the value of {@code for}, without a port that is hidden ({@code _port}); empty if there is none, or if the element is malformed} */
        String node() {
            String node = null;
            for (skip(" \t;"); place < text.length(); skip(" \t;")) {
                int equals = text.indexOf('=', place);
                if (equals < 0 || !isToken(text.substring(place, equals))) {
                    return "";
                }
                String name = text.substring(place, equals).toLowerCase(Locale.ROOT);
                place = equals + 1;
                String value = value();
                skip(" \t");
                boolean isSecond = name.equals("for") && node != null;
                if (value == null || isSecond || place < text.length() && text.charAt(place) != ';') {
                    return "";
                }
                node = name.equals("for") ? value : node;
            }
            return node == null ? "" : withoutHiddenPort(node);
        }

        private void skip(String characters) {
            while (place < text.length() && characters.indexOf(text.charAt(place)) >= 0) {
                place++;
            }
        }

        /** Reads a value; null if it is none. Without quotes it may be an address that needs them: {@code for=192.0.2.1:80} has one meaning. */
        private String value() {
            if (place == text.length() || text.charAt(place) != '"') {
                int start = place;
                while (place < text.length() && "; \t\"\\".indexOf(text.charAt(place)) < 0) {
                    place++;
                }
                return place > start ? text.substring(start, place) : null;
            }
            StringBuilder value = new StringBuilder();
            for (place++; place < text.length(); place++) {
                if (text.charAt(place) == '"') {
                    place++;
                    return value.toString();
                }
                if (text.charAt(place) == '\\' && ++place == text.length()) {
                    return null;
                }
                value.append(text.charAt(place));
            }
            return null;
        }

        private static String withoutHiddenPort(String node) {
            int colon = node.lastIndexOf(":_");
            boolean isHidden = colon >= 0 && colon + 2 < node.length() && node.substring(colon + 1).chars().allMatch(c -> isAlphanumeric(c) || "._-".indexOf(c) >= 0);
            return isHidden ? node.substring(0, colon) : node;
        }

        private static boolean isToken(String name) {
            return !name.isEmpty() && name.chars().allMatch(c -> isAlphanumeric(c) || PUNCTUATION_OF_NAMES.indexOf(c) >= 0);
        }

        private static boolean isAlphanumeric(int c) {
            return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z';
        }
    }
}
