package io.sluicegate;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Texts of the addresses that proxies wrote in a field, read from the right: what a client wrote is to the left of them. */
final class ForwardedHops {
    /** As at servers: no request passes more proxies. */
    private static final int HOPS_MAX = 64;
    /** A parameter. A value without quotes may be an address that needs them: {@code for=192.0.2.1:80} has one meaning. */
    private static final Pattern PARAMETER = Pattern.compile("([!#$%&'*+.^_`|~0-9A-Za-z-]+)="
        + "(?:\"((?:[^\"\\\\]++|\\\\.)*+)\"|([^; \t\"\\\\]++))[ \t]*+(?:;[ \t;]*+|\\z)", Pattern.DOTALL);

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
        return hasElements ? node(text) : text;
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

    /** {@return the value of {@code for}, without a port that is hidden ({@code _port}); empty if there is none, or if the element is malformed} */
    private static String node(String element) {
        List<String> nodes = new ArrayList<>();
        Matcher parameter = PARAMETER.matcher(element.replaceFirst("^[ \t;]+", ""));
        while (parameter.regionStart() < parameter.regionEnd()) {
            if (!parameter.lookingAt()) {
                return "";
            }
            if (parameter.group(1).equalsIgnoreCase("for")) {
                nodes.add(parameter.group(3) != null ? parameter.group(3) : parameter.group(2).replaceAll("(?s)\\\\(.)", "$1"));
            }
            parameter.region(parameter.end(), parameter.regionEnd());
        }
        return nodes.size() == 1 ? nodes.get(0).replaceFirst(":_[0-9A-Za-z._-]+\\z", "") : "";
    }
}
