//! Slots of a cluster: the slot of a key, and the replies of nodes about slots.

use redis::Value;

use super::address::Address;
use super::url::parse_host;

/// Slots in every cluster.
pub(super) const SLOTS: u16 = 16384;

/// Slots next to each other that belong to one master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) address: Address,
}

/// Returns the slot of `key`: of the part between the first braces, if there is one that is not
/// empty.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % SLOTS
}

/// Reads the reply to `CLUSTER SLOTS` by the node at `from`; `None` if it is not such a reply, or
/// if the node serves no slot at all.
pub(super) fn read_slots(reply: &Value, from: &Address) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = reply else { return None };
    let ranges: Option<Vec<_>> = ranges.iter().map(|range| read_range(range, from)).collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

/// Reads a `host:port` in a redirection by the node at `from`.
pub(super) fn read_target(text: &str, from: &Address) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    match host {
        "" | "?" => place(None, port.parse().ok()?, from),
        _ => parse_host(text, 0).ok(),
    }
}

fn read_range(range: &Value, from: &Address) -> Option<SlotRange> {
    let Value::Array(fields) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &fields[..] else {
        return None;
    };
    let [host, Value::Int(port), ..] = &master[..] else { return None };
    let host = match host {
        Value::BulkString(host) => Some(std::str::from_utf8(host).ok()?),
        _ => None,
    };
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|&slot| slot < SLOTS);
    let address = place(host, u16::try_from(*port).ok()?, from)?;
    Some(SlotRange { first: slot(first)?, last: slot(last)?, address })
}

/// Returns the address of a node. A node that does not know its own name leaves it out: then it is
/// that of `from`.
fn place(host: Option<&str>, port: u16, from: &Address) -> Option<Address> {
    match host {
        Some(host) if !host.is_empty() && host != "?" => Some(Address::Tcp(host.into(), port)),
        _ => from.host().map(|host| Address::Tcp(host.into(), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address::Tcp(host.into(), port)
    }

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![host, Value::Int(port), bulk("id")]);
        let replica = Value::Array(vec![bulk("replica"), Value::Int(1), bulk("id")]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master, replica])
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn slots_are_those_of_the_servers() {
        // The slots of `CLUSTER KEYSLOT`.
        for (key, slot) in [
            ("123456789", 12739),
            ("foo", 12182),
            ("{foo}bar", 12182),
            ("a{foo}{bar}", 12182),
            ("foo{}{bar}", 8363),
            ("", 0),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
        assert_eq!(slot_of(b"{open"), slot_of(b"{open"));
        assert_ne!(slot_of(b"{open"), slot_of(b"open"));
    }

    #[test]
    fn the_map_is_read_with_nodes_that_do_not_know_their_name() {
        let reply = Value::Array(vec![
            range(0, 100, bulk("10.0.0.1"), 7000),
            range(101, 16383, bulk(""), 7001),
            range(5, 5, Value::Nil, 7002),
        ]);
        let ranges = read_slots(&reply, &at("here", 7001)).expect("a good reply");
        let addresses: Vec<_> = ranges.iter().map(|range| range.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.0.1:7000", "here:7001", "here:7002"]);
        assert_eq!((ranges[1].first, ranges[1].last), (101, 16383));
    }

    #[test]
    fn what_is_no_map_is_not_taken_for_one() {
        let from = at("here", 1);
        for reply in [
            Value::Nil,
            Value::Array(vec![]),
            Value::Array(vec![range(0, 16384, bulk("h"), 1)]),
            Value::Array(vec![range(-1, 5, bulk("h"), 1)]),
            Value::Array(vec![range(0, 5, bulk("h"), 70000)]),
            Value::Array(vec![Value::Int(1)]),
        ] {
            assert_eq!(read_slots(&reply, &from), None, "{reply:?}");
        }
    }
}
