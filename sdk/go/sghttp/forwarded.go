package sghttp

import (
	"cmp"
	"net/netip"
	"regexp"
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

// parameter is a parameter of an element. A value without quotes may be an address that needs them: `for=192.0.2.1:80` has one meaning.
var parameter = regexp.MustCompile("(?s)^([!#$%&'*+.^_`|~0-9A-Za-z-]+)=" + `(?:"((?:[^"\\]|\\.)*)"|([^; \t"\\]+))[ \t]*(?:;[ \t;]*|$)`)

var (
	escapedByte = regexp.MustCompile(`(?s)\\(.)`)
	hiddenPort  = regexp.MustCompile(`:_[0-9A-Za-z._-]+$`)
)

// forNode returns the node of the parameter `for` of an element, without a port that is hidden (`_port`); "" if there is none, or if
// the element is malformed.
func forNode(element string) string {
	var nodes []string
	for element = strings.TrimLeft(element, " \t;"); element != ""; {
		found := parameter.FindStringSubmatch(element)
		if found == nil {
			return ""
		}
		if strings.EqualFold(found[1], "for") {
			nodes = append(nodes, cmp.Or(found[3], escapedByte.ReplaceAllString(found[2], "$1")))
		}
		element = element[len(found[0]):]
	}
	if len(nodes) != 1 {
		return ""
	}
	return hiddenPort.ReplaceAllString(nodes[0], "")
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
