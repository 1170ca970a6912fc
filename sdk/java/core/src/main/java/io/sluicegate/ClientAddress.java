package io.sluicegate;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Finds the address of a client behind trusted proxies, as a key: IPv4 unchanged, IPv6 as its first 64 bits.
 * {@code X-Forwarded-For}, or the field that the proxies set instead, is ignored if an untrusted client sends it. A port behind an address is left
 * out: {@code 1.2.3.4:555}, {@code [2001:db8::1]:555}.
 */
public final class ClientAddress {
    /** The field that proxies add the address of their client to. */
    public static final String FORWARDED_FOR = "X-Forwarded-For";

    /** The field of RFC 7239, whose elements have parameters. */
    private static final String FORWARDED = "Forwarded";
    private static final int PORT_MAX = 65535;

    private final List<Network> trusted;
    private final String header;

    private record Network(byte[] address, int bits) {
        boolean contains(byte[] other) {
            if (other.length != address.length) {
                return false;
            }
            for (int bit = 0; bit < bits; bit++) {
                int mask = 0x80 >> bit % 8;
                if ((address[bit / 8] & mask) != (other[bit / 8] & mask)) {
                    return false;
                }
            }
            return true;
        }
    }

    private ClientAddress(List<Network> trusted, String header) {
        this.trusted = List.copyOf(trusted);
        this.header = header;
    }

    /**
     * Trusts proxies.
     *
     * @param proxies networks such as {@code 10.0.0.0/8}, or single addresses
     * @return the finder
     * @throws IllegalArgumentException if one is not a network
     */
    public static ClientAddress behind(String... proxies) {
        List<Network> networks = new ArrayList<>();
        for (String proxy : proxies) {
            int slash = proxy.indexOf('/');
            String text = slash < 0 ? proxy : proxy.substring(0, slash);
            byte[] address = parse(text);
            String length = slash < 0 ? "" : proxy.substring(slash + 1);
            int bits = address == null ? -1 : slash < 0 ? address.length * 8 : length.matches("[0-9]{1,3}") ? Integer.parseInt(length) : -1;
            if (slash >= 0 && bits >= 0 && address.length == 4 && text.indexOf(':') >= 0) {
                // IPv4 inside IPv6, whose first 96 bits are those around it.
                bits = bits >= 96 ? bits - 96 : -1;
            }
            if (bits < 0 || bits > address.length * 8) {
                throw new IllegalArgumentException("`" + proxy + "` is not a network");
            }
            networks.add(new Network(address, bits));
        }
        return new ClientAddress(networks, FORWARDED_FOR);
    }

    /**
     * Reads another field than {@code X-Forwarded-For}, such as {@code X-Real-IP} or {@code CF-Connecting-IP}. It is believed from the
     * same proxies only, all of which have to set it, and to replace what a client sends. Of {@code Forwarded} (RFC 7239) the parameter {@code for}
     * of each element is read; proxies add to it, and a client that is hidden there ({@code _name}, {@code unknown}) counts as the proxy that wrote it.
     *
     * @param name the name of the field
     * @return a finder that reads it
     */
    public ClientAddress from(String name) {
        if (name.isBlank()) {
            throw new IllegalArgumentException("`" + name + "` is not the name of a field");
        }
        return new ClientAddress(trusted, name);
    }

    /** {@return the name of the field that has the address} */
    public String header() {
        return header;
    }

    /**
     * The key of a client.
     *
     * @param peer the address at the other end of the connection
     * @param forwardedFor the values of {@link #header()}, joined by commas; may be null
     * @return the last address that no trusted proxy has, as a key
     */
    public String key(String peer, String forwardedFor) {
        byte[] address = parse(peer);
        if (address == null) {
            return peer;
        }
        ForwardedHops hops = new ForwardedHops(forwardedFor, header.equalsIgnoreCase(FORWARDED));
        while (isTrusted(address)) {
            String text = hops.next();
            byte[] hop = text == null ? null : parseHop(text);
            if (hop == null) {
                break;
            }
            address = hop;
        }
        return text(v4InNat64(address) ? Arrays.copyOfRange(address, 12, 16) : address);
    }

    // An address of NAT64 is a client's, though its key is that of an IPv4 address.
    private boolean isTrusted(byte[] address) {
        return trusted.stream().anyMatch(network -> network.contains(address));
    }

    /**
     * {@return an address as proxies write it, null for anything else} A port does not count: of IPv6 it is behind brackets, as else it would be
     * a part of the address. An address with a zone is none: it means something on one machine only.
     */
    private static byte[] parseHop(String text) {
        int colon = text.lastIndexOf(':');
        boolean hasPort = colon > 0 && (text.indexOf(':') == colon || text.charAt(colon - 1) == ']');
        if (hasPort && !isPort(text.substring(colon + 1))) {
            return null;
        }
        String host = hasPort ? text.substring(0, colon) : text;
        boolean isV4InBrackets = host.startsWith("[") && host.indexOf(':') < 0;
        return isV4InBrackets || host.indexOf('%') >= 0 ? null : parse(host);
    }

    private static boolean isPort(String text) {
        return text.matches("0*[0-9]{1,5}") && Integer.parseInt(text) <= PORT_MAX;
    }

    // No name is looked up: a text that is not an address is none.
    private static byte[] parse(String text) {
        String bare = text.startsWith("[") && text.endsWith("]") ? text.substring(1, text.length() - 1) : text;
        int scope = bare.indexOf('%');
        bare = scope < 0 ? bare : bare.substring(0, scope);
        boolean v4 = bare.matches("(0|[1-9][0-9]{0,2})(\\.(0|[1-9][0-9]{0,2})){3}");
        boolean v6 = bare.indexOf(':') >= 0 && bare.matches("[0-9a-fA-F:.]{2,45}");
        if (!v4 && !v6) {
            return null;
        }
        try {
            return InetAddress.getByName(bare).getAddress();
        } catch (UnknownHostException e) {
            return null;
        }
    }

    // 64:ff9b::/96 of RFC 6052; what is inside ::ffff:0:0/96 Java gives as IPv4 already.
    private static boolean v4InNat64(byte[] address) {
        byte[] prefix = {0, 0x64, (byte) 0xff, (byte) 0x9b, 0, 0, 0, 0, 0, 0, 0, 0};
        return address.length == 16 && Arrays.equals(address, 0, 12, prefix, 0, 12);
    }

    private static String text(byte[] address) {
        if (address.length == 4) {
            return (address[0] & 0xff) + "." + (address[1] & 0xff) + "." + (address[2] & 0xff) + "." + (address[3] & 0xff);
        }
        int groups = 4;
        while (groups > 0 && address[2 * groups - 2] == 0 && address[2 * groups - 1] == 0) {
            groups--;
        }
        StringBuilder out = new StringBuilder();
        for (int group = 0; group < groups; group++) {
            int value = (address[2 * group] & 0xff) << 8 | address[2 * group + 1] & 0xff;
            out.append(group > 0 ? ":" : "").append(Integer.toHexString(value));
        }
        return out.append("::/64").toString();
    }
}
