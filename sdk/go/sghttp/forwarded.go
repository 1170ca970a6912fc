package sghttp

import (
	"net/netip"
	"strings"
)

// forwardedFor is the field in which proxies name the client, unless [ProxyHeader] names another.
const forwardedFor = "X-Forwarded-For"

// forwarded is the field of RFC 7239, whose elements have parameters.
const forwarded = "Forwarded"

// hopsMax is how many addresses of such a field are looked at, as at servers: no request passes more proxies.
const hopsMax = 64

// hops are the addresses that proxies wrote in a field, read from the right: what a client wrote is to the left of it.
type hops struct {
	list        string
	hasElements bool
	looked      int
	isExhausted bool
}

func hopsOf(field string, values []string) *hops {
	return &hops{list: strings.Join(values, ","), hasElements: strings.EqualFold(field, forwarded), isExhausted: len(values) == 0}
}

// next returns the next address; false if there is none, or something other than an address.
func (h *hops) next() (netip.Addr, bool) {
	if h.isExhausted || h.looked == hopsMax {
		return netip.Addr{}, false
	}
	h.looked++
	comma := strings.LastIndexByte(h.list, ',')
	if h.hasElements {
		comma = lastDivider(h.list)
	}
	text := strings.TrimSpace(h.list[comma+1:])
	h.list, h.isExhausted = h.list[:max(comma, 0)], comma < 0
	if h.hasElements {
		text = forNode(text)
	}
	return forwardedAddress(text)
}

// lastDivider returns where the last comma outside of quotes is; -1 without one. It reads from the right, so that a quote of a
// client changes nothing of what proxies wrote behind it.
func lastDivider(list string) int {
	isQuoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch {
		case list[i] == '"' && !(isQuoted && endsEscaping(list[:i])):
			isQuoted = !isQuoted
		case list[i] == ',' && !isQuoted:
			return i
		}
	}
	return -1
}

// endsEscaping returns whether the byte behind a text is escaped: whether an odd number of backslashes is before it.
func endsEscaping(text string) bool {
	return (len(text)-len(strings.TrimRight(text, `\`)))%2 == 1
}

// forNode returns the node of the parameter `for` of an element, without a port that is hidden (`_port`); "" if there is none, or if
// the element is malformed.
func forNode(element string) string {
	node, isFound := "", false
	for {
		element = strings.TrimLeft(element, " \t;")
		if element == "" {
			return withoutHiddenPort(node)
		}
		name, rest, hasValue := strings.Cut(element, "=")
		if !hasValue || !isToken(name) {
			return ""
		}
		value, rest, isRead := parameter(rest)
		rest = strings.TrimLeft(rest, " \t")
		if !isRead || rest != "" && rest[0] != ';' {
			return ""
		}
		if strings.EqualFold(name, "for") {
			if isFound {
				return ""
			}
			node, isFound = value, true
		}
		element = rest
	}
}

// parameter reads a value, in quotes or without them, and returns what is behind it. Without them it may be an address that needs
// them: `for=192.0.2.1:80` has one meaning.
func parameter(text string) (value, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, "; \t\"\\")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], end > 0
	}
	var out strings.Builder
	for i := 1; i < len(text); i++ {
		if text[i] == '"' {
			return out.String(), text[i+1:], true
		}
		if text[i] == '\\' {
			i++
		}
		if i < len(text) {
			out.WriteByte(text[i])
		}
	}
	return "", "", false
}

func withoutHiddenPort(node string) string {
	colon := strings.LastIndex(node, ":_")
	if colon < 0 || colon+len(":_") == len(node) || strings.ContainsFunc(node[colon+1:], func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune("._-", c) }) {
		return node
	}
	return node[:colon]
}

// isToken returns whether a text is a name as RFC 9110 has it.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !isAlphanumeric(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c) })
}

func isAlphanumeric(c rune) bool {
	return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// forwardedAddress reads an address as proxies write it: `192.0.2.1`, `192.0.2.1:4711`, `2001:db8::1`, `[2001:db8::1]` or
// `[2001:db8::1]:4711`. One with a zone is none: it means something on one machine only.
func forwardedAddress(text string) (netip.Addr, bool) {
	withPort, err := netip.ParseAddrPort(text)
	address := withPort.Addr()
	if err != nil {
		if inside, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inside, "]") && strings.Contains(inside, ":") {
			text = strings.TrimSuffix(inside, "]")
		}
		address, err = netip.ParseAddr(text)
	}
	return address, err == nil && address.Zone() == ""
}
