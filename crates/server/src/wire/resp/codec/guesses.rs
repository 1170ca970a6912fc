//! Wrong passwords, counted for each network that they come from.
//!
//! A network may send [`WRONG_MAX`] wrong passwords, and one more every [`FORGIVEN_EVERY`]: beyond, its
//! passwords are not compared at all, right or wrong. Only passwords that were wrong count, so that
//! clients elsewhere notice nothing; and the same wrong one again counts once, so that a program with an
//! old password that tries for ever does not keep its neighbours out.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use sluicegate::Micros;

use crate::protocol::Peer;

/// Maximum number of wrong passwords that a network may send at once: those of the people and programs
/// behind one address, in the hour in which a password is changed.
const WRONG_MAX: u64 = 30;

/// Interval between wrong passwords of a network in the long run: 14,400 passwords a day are a few of
/// the millions that it takes to guess a weak one.
const FORGIVEN_EVERY: Micros = Micros::from_secs(6);

/// Maximum number of networks that are remembered: 40 bytes each. Beyond, the one that was wrong least
/// often, or longest ago, is forgotten.
const NETWORKS_MAX: usize = 4_096;

/// The network of a client: an address of version 4, or 64 bits of one of version 6, which is what one customer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientNetwork {
    V4(u32),
    V6(u64),
    Here,
}

/// Wrong passwords of networks lately.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    guilt: Mutex<HashMap<ClientNetwork, WrongGuesses>>,
    hasher: RandomState,
}

#[derive(Debug)]
struct WrongGuesses {
    /// The time when all wrong passwords are forgiven.
    until: Micros,
    /// The hash of the last wrong password.
    last: u64,
}

/// The result of a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuessResult {
    Right,
    Wrong,
    /// The guess was not compared, and none will be for so long.
    Later(Micros),
}

impl From<Peer> for ClientNetwork {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Ip(IpAddr::V4(address)) => Self::V4(address.to_bits()),
            Peer::Ip(IpAddr::V6(address)) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
            }
            Peer::Local => Self::Here,
        }
    }
}

impl Guesses {
    /// Compares a password of `network`, unless the network was wrong too often.
    pub(super) fn guess(
        &self,
        network: ClientNetwork,
        password: &[u8],
        now: Micros,
        is_right: impl FnOnce(&[u8]) -> bool,
    ) -> GuessResult {
        // Looked up, compared and counted under one lock, so that many guesses at once count as one by one.
        let mut guilt = self.guilt.lock().unwrap_or_else(PoisonError::into_inner);
        let until = guilt.get(&network).map_or(now, |guilt| guilt.until.max(now));
        let most = Micros::new(FORGIVEN_EVERY.get() * WRONG_MAX);
        let after = until.plus(FORGIVEN_EVERY);
        if after.since(now) > most {
            return GuessResult::Later(after.since(now).since(most));
        }
        if is_right(password) {
            return GuessResult::Right;
        }
        let hash = self.hasher.hash_one(password);
        if !guilt.contains_key(&network) && guilt.len() >= NETWORKS_MAX {
            make_room(&mut guilt, now);
        }
        match guilt.entry(network) {
            Entry::Occupied(known) if known.get().last == hash && known.get().until > now => {}
            entry => _ = entry.insert_entry(WrongGuesses { until: after, last: hash }),
        }
        GuessResult::Wrong
    }
}

/// Forgets networks that were forgiven; if there are none, the one that is forgiven next.
fn make_room(guilt: &mut HashMap<ClientNetwork, WrongGuesses>, now: Micros) {
    guilt.retain(|_, guilt| guilt.until > now);
    if guilt.len() >= NETWORKS_MAX {
        let least = guilt.iter().min_by_key(|(_, guilt)| guilt.until).map(|(network, _)| *network);
        least.map(|network| guilt.remove(&network));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> ClientNetwork {
        Peer::Ip(address.parse().unwrap()).into()
    }

    /// The guess of number `number`; 0 is right.
    fn guess(guesses: &Guesses, from: ClientNetwork, number: u64, now: Micros) -> GuessResult {
        guesses.guess(from, &number.to_le_bytes(), now, |password| password == [0; 8])
    }

    #[test]
    fn a_network_guesses_thirty_times_and_then_ten_times_a_minute() {
        let (guesses, from, hour) = (Guesses::default(), network("192.0.2.7"), 3_600);
        let mut wrong = 0;
        for tenth in 0..hour * 10 {
            let now = Micros::new(tenth * 100_000);
            wrong += u64::from(guess(&guesses, from, tenth + 1, now) == GuessResult::Wrong);
        }
        assert_eq!(wrong, WRONG_MAX + hour / 6 - 1);
    }

    #[test]
    fn the_right_password_is_not_looked_at_from_there_and_at_once_from_elsewhere() {
        let (guesses, now) = (Guesses::default(), Micros::from_secs(1));
        let guilty = network("2001:db8::1");
        for number in 1..=WRONG_MAX {
            assert_eq!(guess(&guesses, guilty, number, now), GuessResult::Wrong);
        }
        for from in [guilty, network("2001:db8::ffff:2")] {
            assert_eq!(guess(&guesses, from, 0, now), GuessResult::Later(FORGIVEN_EVERY));
        }
        for from in [network("2001:db8:0:1::1"), network("192.0.2.7"), ClientNetwork::Here] {
            assert_eq!(guess(&guesses, from, 0, now), GuessResult::Right);
        }
        let later = now.plus(FORGIVEN_EVERY);
        assert_eq!(guess(&guesses, guilty, 0, later), GuessResult::Right);
    }

    #[test]
    fn the_same_wrong_password_again_counts_once() {
        let guesses = Guesses::default();
        let from = network("192.0.2.7");
        for second in 0..1_000 {
            let now = Micros::from_secs(second);
            assert_eq!(guess(&guesses, from, 1, now), GuessResult::Wrong);
            assert_eq!(guess(&guesses, from, 0, now), GuessResult::Right);
        }
    }

    #[test]
    fn a_flood_of_networks_neither_grows_the_table_nor_clears_the_guilty() {
        let (guesses, now) = (Guesses::default(), Micros::from_secs(1));
        let guilty = network("192.0.2.7");
        for number in 1..=WRONG_MAX {
            guess(&guesses, guilty, number, now);
        }
        for other in 0..2 * u32::try_from(NETWORKS_MAX).unwrap() {
            assert_eq!(guess(&guesses, ClientNetwork::V4(other), 1, now), GuessResult::Wrong);
        }
        assert_eq!(guesses.guilt.lock().unwrap().len(), NETWORKS_MAX);
        assert_eq!(guess(&guesses, guilty, 0, now), GuessResult::Later(FORGIVEN_EVERY));
    }
}
