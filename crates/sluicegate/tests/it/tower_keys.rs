//! Tests of key extractors: the budget from which each request takes.
#![cfg(feature = "axum")]
#![expect(clippy::unwrap_used, reason = "what a test builds is known to be right")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::extract::ConnectInfo;
use http::request::Parts;
use http::{Request, StatusCode};
use sluicegate::internals::http::address::parse_address;
use sluicegate::internals::http::{AddressKey, TrustedProxies, V6Prefix};
use sluicegate::tower::{ForwardedFor, Header, Key, KeyError, KeyExtractor, PeerAddr};

/// The request that `peer` sends with these `X-Forwarded-For` lines.
fn request(peer: &str, lines: &[&[u8]]) -> Parts {
    let peer = SocketAddr::new(peer.parse().unwrap(), 4711);
    let mut request = Request::get("/").extension(ConnectInfo(peer));
    for line in lines {
        request = request.header("x-forwarded-for", *line);
    }
    request.body(()).unwrap().into_parts().0
}

/// Returns the address whose bits are the key.
fn address(key: &Key) -> String {
    let bytes = key.as_bytes();
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ipv4Addr::from(v4).to_string();
    }
    Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).to_string()
}

#[test]
fn an_address_is_a_key_by_its_bits() {
    let cases = [
        ("192.0.2.1", "192.0.2.1"),
        ("0.0.0.0", "0.0.0.0"),
        ("255.255.255.255", "255.255.255.255"),
        // IPv4-mapped, in both notations and with leading zeros.
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:c000:201", "192.0.2.1"),
        ("0:0:0:0:0:ffff:c000:0201", "192.0.2.1"),
        ("::FFFF:C000:0201", "192.0.2.1"),
        // NAT64, in both notations; only the well-known /96.
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("64:ff9b::c000:201", "192.0.2.1"),
        ("64:ff9b:0:0:1::c000:201", "64:ff9b::"),
        ("64:ff9b:1::c000:201", "64:ff9b:1::"),
        // Everything else is its /64.
        ("2001:db8::1", "2001:db8::"),
        ("2001:db8::ffff:ffff:ffff:ffff", "2001:db8::"),
        ("2001:0DB8:0000:0000:0000:0000:0000:0001", "2001:db8::"),
        ("2001:db8:0:1::1", "2001:db8:0:1::"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1", "fe80::"),
        ("::1", "::"),
        ("::", "::"),
        // Deprecated IPv4-compatible and 6to4 addresses are ordinary ones.
        ("::192.0.2.1", "::"),
        ("2002:c000:201::1", "2002:c000:201::"),
    ];
    for (peer, expected) in cases {
        let key = PeerAddr::default().extract(&request(peer, &[])).unwrap();
        assert_eq!(address(&key), expected, "{peer}");
    }
}

#[test]
fn the_prefix_of_ipv6_is_configurable_and_leaves_ipv4_alone() {
    let cases = [
        (48, "2001:db8:1:2:3:4:5:6", "2001:db8:1::"),
        (56, "2001:db8:1:2ff:3:4:5:6", "2001:db8:1:200::"),
        (64, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        (65, "2001:db8:1:2:8003:4:5:6", "2001:db8:1:2:8000::"),
        (128, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"),
        (48, "::ffff:192.0.2.1", "192.0.2.1"),
        (48, "64:ff9b::192.0.2.1", "192.0.2.1"),
    ];
    for (bits, peer, expected) in cases {
        let extractor = PeerAddr::default().with_v6_prefix(bits).unwrap();
        let key = extractor.extract(&request(peer, &[])).unwrap();
        assert_eq!(address(&key), expected, "{peer}/{bits}");
    }
}

#[test]
fn text_is_an_address_or_nothing() {
    let v4 = Some("192.0.2.1");
    let v6 = Some("2001:db8::1");
    let cases: &[(&[u8], Option<&str>)] = &[
        (b"192.0.2.1", v4),
        (b" \t192.0.2.1 ", v4),
        (b"192.0.2.1:80", v4),
        (b"::ffff:192.0.2.1", v4),
        (b"[::ffff:192.0.2.1]:80", v4),
        (b"2001:db8::1", v6),
        (b"2001:DB8:0::0001", v6),
        (b"[2001:db8::1]", v6),
        (b"[2001:db8::1]:443", v6),
        (b"[2001:0db8:0000:0000:0000:0000:0.0.0.1]:65535", v6),
        // A zone means something on one machine only.
        (b"fe80::1%eth0", None),
        (b"fe80::1%1", None),
        (b"[fe80::1%1]:80", None),
        (b"[fe80::1%0]:80", None),
        // Garbage.
        (b"", None),
        (b" ", None),
        (b"-", None),
        (b"unknown", None),
        (b"_hidden", None),
        (b"localhost", None),
        (b"192.0.2", None),
        (b"192.0.2.1.1", None),
        (b"192.0.2.256", None),
        (b"192.0.02.1", None),
        (b"0xC0000201", None),
        (b"3221225985", None),
        (b"-1.0.2.1", None),
        (b"192.0.2.1:", None),
        (b"192.0.2.1:65536", None),
        (b"192.0.2.1:http", None),
        (b"192.0.2.1/24", None),
        (b"[192.0.2.1]", None),
        (b"[2001:db8::1", None),
        (b"2001:db8::1]", None),
        (b"[[2001:db8::1]]", None),
        (b"[2001:db8::1]:", None),
        (b"[2001:db8::1]443", None),
        (b"2001:db8::1::", None),
        (b"2001:db8:::1", None),
        (b"12345::1", None),
        (b"\"192.0.2.1\"", None),
        (b"for=192.0.2.1", None),
        (b"192.0.2.1 192.0.2.2", None),
        (b"192.0.2.1\0", None),
        (b"192.0.2.\xff", None),
        (&[b'1'; 54], None),
        (&[b'1'; 100_000], None),
    ];
    for (text, expected) in cases {
        let expected = expected.map(|address| address.parse::<IpAddr>().unwrap());
        assert_eq!(parse_address(text), expected, "{:?}", String::from_utf8_lossy(text));
    }
}

#[test]
fn forwarded_for_is_believed_past_trusted_proxies_only() {
    let trusted = ["10.0.0.0/8", "192.0.2.9/32", "fd00::/8"];
    let extractor = ForwardedFor::behind(trusted.map(|network| network.parse().unwrap()));
    let cases: &[(&str, &[&[u8]], &str)] = &[
        // Nothing in front: the client's own entries are not believed.
        ("203.0.113.7", &[], "203.0.113.7"),
        ("203.0.113.7", &[b"6.6.6.6"], "203.0.113.7"),
        ("203.0.113.7", &[b"10.0.0.2"], "203.0.113.7"),
        ("203.0.113.7", &[b"6.6.6.6, 10.0.0.2, 10.0.0.3"], "203.0.113.7"),
        ("2001:db8::7", &[b"6.6.6.6"], "2001:db8::"),
        // One trusted proxy.
        ("10.0.0.1", &[b"203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", &[b"203.0.113.7:51234"], "203.0.113.7"),
        ("10.0.0.1", &[b"[2001:db8::7]:51234"], "2001:db8::"),
        ("10.0.0.1", &[b"::ffff:203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", &[b"64:ff9b::203.0.113.7"], "203.0.113.7"),
        ("fd00::1", &[b"203.0.113.7"], "203.0.113.7"),
        ("::ffff:10.0.0.1", &[b"203.0.113.7"], "203.0.113.7"),
        ("192.0.2.9", &[b"203.0.113.7"], "203.0.113.7"),
        ("192.0.2.8", &[b"203.0.113.7"], "192.0.2.8"),
        // The client's own entries stand to the left of those that the proxy appended.
        ("10.0.0.1", &[b"6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", &[b"6.6.6.6,203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", &[b"10.0.0.9, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", &[b"garbage, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", &[b", , ,203.0.113.7"], "203.0.113.7"),
        // A chain of trusted proxies, in one line or several.
        ("10.0.0.1", &[b"203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", &[b"203.0.113.7, 10.0.0.3, fd00::2"], "203.0.113.7"),
        ("10.0.0.1", &[b"203.0.113.7", b"10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", &[b"6.6.6.6", b"203.0.113.7", b"10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", &[b"203.0.113.7, ::ffff:10.0.0.2"], "203.0.113.7"),
        // A NAT64 address is not a trusted proxy, though its key is that of an IPv4 address.
        ("10.0.0.1", &[b"203.0.113.7, 64:ff9b::10.0.0.2"], "10.0.0.2"),
        // An untrusted proxy in between ends the walk.
        ("10.0.0.1", &[b"203.0.113.7, 198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        // Malformed: the last hop that could be believed.
        ("10.0.0.1", &[b""], "10.0.0.1"),
        ("10.0.0.1", &[b"unknown"], "10.0.0.1"),
        ("10.0.0.1", &[b"203.0.113.7, unknown"], "10.0.0.1"),
        ("10.0.0.1", &[b"203.0.113.7, unknown, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &[b"203.0.113.7,, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", &[b"203.0.113.7, 10.0.0.2,"], "10.0.0.1"),
        ("10.0.0.1", &[b"203.0.113.7, fe80::1%eth0"], "10.0.0.1"),
        ("10.0.0.1", &[b"203.0.113.7, \xff\xfe"], "10.0.0.1"),
        ("10.0.0.1", &[b"203.0.113.7; 10.0.0.2"], "10.0.0.1"),
        // Trusted to the end: the first of them.
        ("10.0.0.1", &[b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", &[], "10.0.0.1"),
    ];
    for (peer, lines, expected) in cases {
        let key = extractor.extract(&request(peer, lines)).unwrap();
        let lines: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
        assert_eq!(address(&key), *expected, "{peer} {lines:?}");
    }
}

#[test]
fn a_chain_is_followed_for_64_hops() {
    let trusted = TrustedProxies::new(["10.0.0.0/8".parse().unwrap()]);
    let peer = "10.0.0.1".parse().unwrap();
    let client = |hops: usize| {
        let line = format!("203.0.113.7{}", ", 10.0.0.2".repeat(hops));
        trusted.client_address(peer, [line.as_bytes()]).to_string()
    };
    assert_eq!(client(63), "203.0.113.7");
    assert_eq!(client(64), "10.0.0.2");
    assert_eq!(client(100_000), "10.0.0.2");
}

#[test]
fn a_trusted_network_may_be_written_ipv4_mapped() {
    let trusted = TrustedProxies::new(["::ffff:10.0.0.0/104".parse().unwrap()]);
    assert!(trusted.contains("10.255.0.1".parse().unwrap()));
    assert!(trusted.contains("::ffff:10.255.0.1".parse().unwrap()));
    assert!(!trusted.contains("11.0.0.1".parse().unwrap()));
}

#[test]
fn all_ipv6_trusted_is_no_ipv4_trusted() {
    let trusted = TrustedProxies::new(["::/0".parse().unwrap()]);
    assert!(trusted.contains("2001:db8::1".parse().unwrap()));
    assert!(!trusted.contains("192.0.2.1".parse().unwrap()));
    assert!(!trusted.contains("::ffff:192.0.2.1".parse().unwrap()));
}

#[test]
fn a_peer_in_the_extensions_will_do_and_connect_info_goes_first() {
    let plain = SocketAddr::from(([192, 0, 2, 1], 1));
    let (mut request, ()) = Request::get("/").extension(plain).body(()).unwrap().into_parts();
    let key = PeerAddr::default().extract(&request).unwrap();
    assert_eq!(address(&key), "192.0.2.1");
    request.extensions.insert(ConnectInfo(SocketAddr::from(([192, 0, 2, 2], 1))));
    let key = PeerAddr::default().extract(&request).unwrap();
    assert_eq!(address(&key), "192.0.2.2");
}

#[test]
fn no_peer_is_an_error_of_the_server() {
    let request = Request::get("/").header("x-forwarded-for", "192.0.2.1").body(()).unwrap();
    let (request, ()) = request.into_parts();
    for error in [
        PeerAddr::default().extract(&request).unwrap_err(),
        ForwardedFor::behind(["0.0.0.0/0".parse().unwrap()]).extract(&request).unwrap_err(),
    ] {
        assert_eq!(error, KeyError::NoPeer);
        assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}

#[test]
fn a_header_is_a_key_if_it_is_there_once_and_fits() {
    let extractor = Header::new("X-Api-Key").unwrap();
    let name = || http::HeaderName::from_static("x-api-key");
    let extract = |values: &[&[u8]]| {
        let mut request = Request::get("/");
        for value in values {
            request = request.header("x-api-key", *value);
        }
        extractor.extract(&request.body(()).unwrap().into_parts().0)
    };
    assert_eq!(extract(&[b"secret"]).unwrap().as_bytes(), b"secret");
    assert_eq!(extract(&[b"\xff\x80"]).unwrap().as_bytes(), b"\xff\x80");
    assert_eq!(extract(&[&[b'k'; 1024]]).unwrap().as_bytes().len(), 1024);
    let cases: [(&[&[u8]], KeyError); 4] = [
        (&[], KeyError::MissingHeader(name())),
        (&[b"a", b"a"], KeyError::RepeatedHeader(name())),
        (&[b""], KeyError::Empty),
        (&[&[b'k'; 1025]], KeyError::TooLong(1025)),
    ];
    for (values, error) in cases {
        assert_eq!(extract(values).unwrap_err(), error);
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
    }
    assert!(Header::new("no header").is_err());
}

#[test]
fn errors_name_what_is_wrong_and_what_is_permitted() {
    assert_eq!(KeyError::TooLong(2048).to_string(), "key: `2048` bytes are outside 1..=1024");
    assert_eq!(KeyError::Empty.to_string(), "key: is empty, expected 1..=1024 bytes");
    let missing = KeyError::MissingHeader(http::HeaderName::from_static("x-api-key"));
    assert_eq!(missing.to_string(), "header `x-api-key`: is missing");
}

#[test]
fn a_closure_is_an_extractor_and_all_may_share_one_budget() {
    let by_method = |request: &Parts| Key::new(request.method.as_str());
    let request = request("192.0.2.1", &[]);
    assert_eq!(by_method.extract(&request).unwrap().as_bytes(), b"GET");
    assert_eq!(().extract(&request).unwrap().as_bytes(), b"");
}

#[test]
fn keys_of_ipv4_and_ipv6_never_meet() {
    let v4 = AddressKey::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), V6Prefix::default());
    let v6 = AddressKey::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), V6Prefix::default());
    assert_ne!(v4.as_bytes(), v6.as_bytes());
}
