package sghttp

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluicegate/sluicegate/sdk/go/internal/lex"
)

// keyMax is the longest key in bytes.
const keyMax = 1024

// KeyOf returns the key for a text: itself, or `sha256:` and its SHA-256 in hexadecimal digits if it is longer than 1,024
// bytes.
func KeyOf(text string) string {
	if len(text) <= keyMax {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// JoinKey joins several attributes of a request to one key, as gateways do: with `|` between them, and `\` before each
// `|` and `\` in them. One attribute is the key unchanged.
func JoinKey(values ...string) string {
	if len(values) == 1 {
		return KeyOf(values[0])
	}
	escape := strings.NewReplacer(`\`, `\\`, `|`, `\|`)
	escaped := make([]string, len(values))
	for i, value := range values {
		escaped[i] = escape.Replace(value)
	}
	return KeyOf(strings.Join(escaped, "|"))
}

// RemoteIP returns the client's address as a key: IPv4 (also inside IPv6) as four numbers, other IPv6 as its first 64 bits
// and `/64`; "" if the request has none. X-Forwarded-For is accepted from trusted addresses only: the client is the last
// address in it that is not trusted. An address may have a port and brackets there, which are no part of the key. If one
// cannot be read, such as `198.51.100.1:99999` for its port, the client is the trusted proxy that added it.
func RemoteIP(r *http.Request, trusted ...netip.Prefix) string {
	return remoteIP(r, forwardedFor, trusted)
}

func remoteIP(r *http.Request, field string, trusted []netip.Prefix) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	client, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	hops := hopsOf(field, r.Header.Values(field))
	for isTrusted(client, trusted) {
		next, ok := hops.next()
		if !ok {
			break
		}
		client = next
	}
	return AddressKey(client)
}

// isTrusted reports whether an address is that of a proxy. One of NAT64 is a client's, though its key is that of an IPv4 address.
func isTrusted(address netip.Addr, trusted []netip.Prefix) bool {
	address = address.Unmap().WithZone("")
	return slices.ContainsFunc(trusted, func(prefix netip.Prefix) bool { return unmapped(prefix).Contains(address) })
}

// unmapped returns the network of IPv4 that a network of IPv4 inside IPv6 stands for.
func unmapped(prefix netip.Prefix) netip.Prefix {
	if address := prefix.Addr(); address.Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(address.Unmap(), prefix.Bits()-96).Masked()
	}
	return prefix
}

// nat64 is where IPv6 has the addresses of IPv4, besides ::ffff:0:0/96.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// plain returns an address without its zone, and the IPv4 address that is inside an IPv6 address.
func plain(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if nat64.Contains(address) {
		bytes := address.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return address
}

// AddressKey returns the key of an address, as RemoteIP does.
func AddressKey(address netip.Addr) string {
	address = plain(address)
	if address.Is4() {
		return address.String()
	}
	return netip.PrefixFrom(address, 64).Masked().String()
}

// mustPrefix reads a prefix or an address.
func mustPrefix(text string) netip.Prefix {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address, address.BitLen())
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		panic("sghttp: `" + lex.Short(text) + "` is not a network; expected one such as `10.0.0.0/8`, or an address")
	}
	return prefix.Masked()
}

// Prefixes reads addresses and prefixes such as `10.0.0.0/8`, for RemoteIP. It panics if one is neither, such as the name of a
// host: resolve names yourself.
func Prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = mustPrefix(text)
	}
	return list
}
