//! Hot keys are decided from leases: when they begin, how long they last, and where their permits go.
#![cfg(feature = "engine")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sluicegate::policy::{Document, PolicySet};
use sluicegate::{Cost, Engine, Micros, Mode, Request, Verb};
use sluicegate_kernel::Moment;
use sluicegate_store::lease::Leased;
use sluicegate_store::{Store, StoreRequest};

use crate::leasing::{POLICIES, START, World};

#[tokio::test]
async fn an_answer_is_heard_when_it_comes_and_not_when_it_was_waited_for() {
    let world = World::hot("hot").await;
    let late = || {
        let stats = world.engine.lease_stats().unwrap();
        stats.messages.iter().map(|of_kind| of_kind[2]).sum::<u64>()
    };
    assert_eq!(late(), 0);
    let span = Micros::from_secs(1);
    *world.store.0.stall.lock().unwrap() = Some((Arc::clone(&world.clock), span));
    while world.store.0.stall.lock().unwrap().is_some() {
        world.check("hot", 20).await;
        world.advance(Micros::from_millis(5)).await;
    }
    assert_eq!(late(), 1, "the process stood still for longer than it may wait");
}

/// Sends requests while the store is so far away that every answer comes too late; returns the number that waited.
async fn ask_far(world: &World, requests: usize) -> u64 {
    let waits = || world.engine.lease_stats().unwrap().waits;
    let before = waits();
    for _ in 0..requests {
        let late = Micros::from_millis(60);
        *world.store.0.stall.lock().unwrap() = Some((Arc::clone(&world.clock), late));
        world.check("hot", 1).await;
        world.advance(Micros::from_millis(5)).await;
    }
    waits() - before
}

#[tokio::test]
async fn a_store_that_is_far_away_is_asked_at_once_after_three_late_messages() {
    let world = World::new();
    world.settle().await;
    // In two seconds: three, and one more each second.
    let in_vain = ask_far(&world, 400).await;
    assert!((3..=6).contains(&in_vain), "{in_vain} requests waited for a lease in vain");
    // Then it is near again.
    *world.store.0.stall.lock().unwrap() = None;
    world.advance(Micros::from_secs(6)).await;
    for _ in 0..100 {
        world.check("hot", 1).await;
        world.advance(Micros::from_millis(5)).await;
    }
    assert_eq!(world.check("hot", 1).await.answer.mode, Mode::Leased);
}

#[tokio::test]
async fn a_key_that_is_asked_for_often_is_decided_without_the_store() {
    let world = World::hot("hot").await;
    let (asked, messages) = (world.asked(), world.messages());
    assert!(asked <= 8, "{asked}");
    for _ in 0..10 {
        let admission = world.check("hot", 1).await;
        assert_eq!(admission.answer.mode, Mode::Leased);
        assert_eq!(admission.answer.charged(), 1, "it can be given back");
        assert!(admission.answer.decision.remaining < 1_000);
    }
    assert_eq!(world.asked(), asked);
    assert!(world.messages() <= messages + 1);
}

#[tokio::test]
async fn the_age_of_a_leased_answer_is_that_of_what_the_store_said() {
    let world = World::hot("hot").await;
    let before = world.check("hot", 1).await.answer.age;
    world.clock.advance(Micros::from_millis(3));
    let after = world.check("hot", 1).await.answer.age;
    assert_eq!(after.since(before), Micros::from_millis(3));
}

#[tokio::test]
async fn a_cold_key_is_decided_by_the_store() {
    let world = World::new();
    world.settle().await;
    for _ in 0..50 {
        assert_eq!(world.check("hot", 1).await.answer.mode, Mode::Store);
        world.advance(Micros::from_millis(80)).await;
    }
    assert_eq!((world.asked(), world.messages()), (50, 0));
}

#[tokio::test]
async fn nothing_is_leased_that_cannot_be() {
    for policy in ["small", "off", "held"] {
        let world = World::hot(policy).await;
        assert_eq!((world.messages(), world.asked()), (0, 20), "of {policy}");
    }
}

#[tokio::test]
async fn a_policy_sets_how_much_and_how_long() {
    let world = World::hot("half").await;
    let [key] = &world.engine.leased_keys()[..] else { panic!("one key") };
    assert!(key.ends_in <= Micros::from_millis(100), "{key:?}");
    // 200 requests a second: for a second and a half.
    for _ in 0..200 {
        world.check("half", 1).await;
        world.advance(Micros::from_millis(5)).await;
    }
    assert!(world.left() > 50 && world.left() <= 300, "{}", world.left());
}

#[tokio::test]
async fn what_passes_while_time_stands_still_is_the_burst_and_hardly_less() {
    let world = World::hot("hot").await;
    // All permits are there again.
    world.advance(Micros::from_secs(20)).await;
    let mut admitted = 0;
    for _ in 0..3_000 {
        admitted += world.check("hot", 1).await.answer.decision.granted();
    }
    // The last permits are requested at a pace.
    assert!((950..=1_000).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn an_engine_without_a_keeper_leases_nothing() {
    let world = World::hot("hot").await;
    world.keeper.abort();
    world.settle().await;
    for _ in 0..20 {
        assert_eq!(world.check("hot", 1).await.answer.mode, Mode::Store);
    }
}

#[tokio::test]
async fn a_request_that_waits_is_answered_when_the_keeper_ends() {
    let world = World::hot("hot").await;
    // More than is left: it waits for a message.
    let engine = Arc::clone(&world.engine);
    let waiting = tokio::spawn(async move {
        let cost = Cost::new(6).unwrap();
        let requests = (0..20).map(|_| Request::new("hot", Some(b"k"), Verb::Check { cost }));
        let requests: Vec<_> = requests.collect();
        engine.turn().decide_each(&requests).await
    });
    tokio::task::yield_now().await;
    world.keeper.abort();
    let decided = waiting.await.unwrap();
    assert!(decided.iter().all(|decided| decided.as_ref().unwrap().way.passes()));
}

#[tokio::test]
async fn what_is_returned_goes_back_into_the_lease() {
    let world = World::hot("hot").await;
    world.check("hot", 3).await;
    let (left, asked) = (world.left(), world.asked());
    let refund = world.ask("hot", Verb::Refund { cost: Cost::new(2).unwrap() }).await;
    assert_eq!((refund.answer.mode, refund.answer.decision.granted()), (Mode::Leased, 2));
    assert_eq!((world.left(), world.asked()), (left + 2, asked));
    // Only the store can give back more than was taken since the last message.
    let refund = world.ask("hot", Verb::Refund { cost: Cost::new(500).unwrap() }).await;
    assert_eq!(refund.answer.mode, Mode::Store);
}

#[tokio::test]
async fn an_idle_key_gives_its_permits_back() {
    let world = World::hot("hot").await;
    assert!(world.store.held("hot") > 0);
    for _ in 0..60 {
        world.advance(Micros::from_millis(25)).await;
    }
    assert_eq!((world.store.held("hot"), world.left()), (0, 0));
    for _ in 0..500 {
        world.advance(Micros::from_millis(25)).await;
    }
    assert!(world.engine.leased_keys().is_empty());
}

#[tokio::test]
async fn a_key_that_has_cooled_is_leased_again_once_it_is_asked_for_often() {
    let world = World::hot("hot").await;
    for _ in 0..16 {
        world.check("hot", 1).await;
        for _ in 0..60 {
            world.advance(Micros::from_millis(25)).await;
        }
    }
    assert_eq!(world.check("hot", 1).await.answer.mode, Mode::Store, "it is cold");
    for _ in 0..40 {
        world.check("hot", 1).await;
        world.advance(Micros::from_millis(5)).await;
    }
    assert_eq!(world.check("hot", 1).await.answer.mode, Mode::Leased);
}

/// An earlier message may still be under way: it must not be taken for a later one.
#[tokio::test]
async fn a_key_that_was_forgotten_numbers_its_messages_on() {
    let world = World::hot("hot").await;
    for _ in 0..480 {
        world.advance(Micros::from_millis(25)).await;
    }
    assert!(world.engine.leased_keys().is_empty(), "it was forgotten");
    let before = world.store.0.numbers.lock().unwrap().len();
    for _ in 0..20 {
        world.check("hot", 1).await;
        world.advance(Micros::from_millis(5)).await;
    }
    let numbers = world.store.0.numbers.lock().unwrap().clone();
    assert!(before > 0 && numbers.len() > before);
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[tokio::test]
async fn a_key_that_sent_less_takes_no_numbers_back_when_it_is_forgotten() {
    let world = World::hot("hot").await;
    let ask_other = async || {
        let verb = Verb::Check { cost: Cost::ONE };
        let request = Request::new("hour", Some(b"other"), verb);
        world.engine.turn().decide(&request).await.unwrap();
        world.advance(Micros::from_millis(5)).await;
    };
    for nth in 0..300 {
        world.check("hot", 8).await;
        world.advance(Micros::from_millis(5)).await;
        if nth >= 280 {
            ask_other().await;
        }
    }
    let before = world.store.0.numbers.lock().unwrap().clone();
    assert!(before.len() > 5, "{before:?}");
    assert_eq!(world.engine.leased_keys().len(), 2);
    // The other key is forgotten later.
    world.advance(Micros::from_millis(500)).await;
    ask_other().await;
    for _ in 0..480 {
        world.advance(Micros::from_millis(25)).await;
    }
    assert!(world.engine.leased_keys().is_empty(), "both were forgotten");
    for _ in 0..20 {
        world.check("hot", 1).await;
        world.advance(Micros::from_millis(5)).await;
    }
    let numbers = world.store.0.numbers.lock().unwrap().clone();
    assert!(numbers.len() > before.len());
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

#[tokio::test]
async fn a_key_in_overload_is_never_given_up_as_idle() {
    let world = World::hot("hot").await;
    for _ in 0..4_000 {
        for _ in 0..2 {
            world.check("hot", 1).await;
        }
        world.advance(Micros::from_millis(1)).await;
    }
    let [.., end] = world.engine.lease_stats().unwrap().messages;
    assert_eq!(end, [0; 3], "messages that end a lease");
    let calls = world.messages() + world.asked();
    assert!(calls <= 8_000 * 3 / 100, "{calls} calls: a share is 50 permits");
}

#[tokio::test]
async fn a_hotter_key_takes_the_place_of_the_coldest_when_too_many_are_leased() {
    let world = World::new();
    world.settle().await;
    let all: Vec<_> = (0..6_000_u32).map(u32::to_be_bytes).collect();
    let ask = async |key: &[u8]| {
        let request = Request::new("hot", Some(key), Verb::Check { cost: Cost::ONE });
        world.engine.turn().decide(&request).await.unwrap().answer.mode
    };
    for key in &all {
        for _ in 0..9 {
            ask(key).await;
        }
    }
    assert_eq!(world.engine.leased_keys().len(), 4_096);
    world.settle().await;
    let held = |leased: &&Leased| leased.leases.held() > 0;
    let held = world.store.0.keys.lock().unwrap().values().filter(held).count();
    assert!(
        (4_000..4_096).contains(&held),
        "{held}: those that make room give theirs back at once"
    );
    let mut leased_after = None;
    // Leased keys have a request now and then, so none is forgotten as idle.
    for tenth in 0..130 {
        if tenth % 5 == 0 {
            for key in &all {
                ask(key).await;
            }
        }
        for _ in 0..30 {
            let mode = ask(b"hotter").await;
            if mode == Mode::Leased {
                leased_after.get_or_insert(tenth);
            }
        }
        world.advance(Micros::from_millis(100)).await;
    }
    // The key that made room is forgotten when no record of it can be left.
    assert!(leased_after.is_some_and(|tenth| (100..=115).contains(&tenth)), "{leased_after:?}");
    assert!(world.engine.leased_keys().len() <= 4_096);
}

#[tokio::test]
async fn a_key_that_is_as_hot_as_the_others_takes_no_place_when_too_many_are_leased() {
    let world = World::new();
    world.settle().await;
    let ask = async |key: &[u8]| {
        let request = Request::new("hot", Some(key), Verb::Check { cost: Cost::ONE });
        world.engine.turn().decide(&request).await.unwrap().answer.mode
    };
    for key in (0..6_000_u32).map(u32::to_be_bytes) {
        for _ in 0..9 {
            ask(&key).await;
        }
    }
    let leased = world.engine.leased_keys();
    assert_eq!(leased.len(), 4_096);
    let holding = || {
        let held = |leased: &&Leased| leased.leases.held() > 0;
        world.store.0.keys.lock().unwrap().values().filter(held).count()
    };
    let mut before = 0;
    for step in 0..60 {
        for key in &leased {
            ask(&key.key).await;
        }
        if step == 40 {
            before = holding();
        }
        if step >= 40 {
            assert_eq!(ask(b"as hot").await, Mode::Store, "{step}");
        }
        world.advance(Micros::from_millis(50)).await;
    }
    assert!(before > 4_000, "{before}");
    assert_eq!(holding(), before);
}

#[tokio::test]
async fn a_process_that_stops_gives_all_permits_back() {
    let world = World::hot("hot").await;
    assert!(world.store.held("hot") > 0);
    world.engine.return_leases();
    world.keeper.await.unwrap();
    assert_eq!(world.store.held("hot"), 0);
    let request = Request::new("hot", Some(b"k"), Verb::Check { cost: Cost::ONE });
    let admission = world.engine.turn().decide(&request).await.unwrap();
    assert_eq!(admission.answer.mode, Mode::Store);
}

#[tokio::test]
async fn permits_of_earlier_rules_are_not_used() {
    let world = World::hot("hot").await;
    world.clock.advance(Micros::from_millis(5));
    let lower = POLICIES.replace("rate: 1000/s, burst: 1000", "rate: 500/s, burst: 500");
    world.engine.set_policies(PolicySet::new(Document::parse(&lower).unwrap()));
    let messages = world.messages();
    let admission = world.check("hot", 1).await;
    assert!(world.messages() > messages, "the lease is renewed under the new rules first");
    assert_eq!(admission.answer.decision.limit, 500);
    for _ in 0..2_000 {
        world.check("hot", 1).await;
    }
    world.settle().await;
    let keys = world.store.0.keys.lock().unwrap();
    let leased = &keys[&("hot".to_owned(), b"k".to_vec())];
    assert!(leased.leases.held() <= 250, "{}", leased.leases.held());
}

#[tokio::test]
async fn a_refusal_of_earlier_rules_is_not_answered_any_more() {
    let world = World::hot("window").await;
    for _ in 0..3_000 {
        world.check("window", 1).await;
    }
    let refused = world.check("window", 1).await.answer;
    assert_eq!((refused.mode, refused.decision.limit), (Mode::Remembered, 1_000));
    let higher = POLICIES.replace("limit: 1000, window: 1s", "limit: 5000, window: 1s");
    world.engine.set_policies(PolicySet::new(Document::parse(&higher).unwrap()));
    for _ in 0..20 {
        assert_eq!(world.check("window", 1).await.answer.decision.limit, 5_000);
    }
}

#[tokio::test]
async fn a_quota_that_was_reset_elsewhere_is_noticed_within_a_second_and_a_quarter() {
    let world = World::hot("hour").await;
    for _ in 0..3_000 {
        world.check("hour", 1).await;
    }
    for _ in 0..100 {
        world.advance(Micros::from_millis(5)).await;
        assert!(!world.check("hour", 1).await.way.passes());
    }
    let policies = PolicySet::new(Document::parse(POLICIES).unwrap());
    let other = Arc::new(Engine::new(policies, world.store.clone(), Arc::clone(&world.clock) as _));
    other.turn().decide(&Request::new("hour", Some(b"k"), Verb::Reset)).await.unwrap();
    let mut waited_ms = 0;
    while !world.check("hour", 1).await.way.passes() {
        world.advance(Micros::from_millis(5)).await;
        waited_ms += 5;
        assert!(waited_ms <= 1_300, "{waited_ms} ms");
    }
}

#[tokio::test]
async fn a_lease_outlives_its_store_until_it_ends() {
    let world = World::hot("closed").await;
    world.store.0.is_silent.store(true, Ordering::Relaxed);
    assert_eq!(world.check("closed", 1).await.answer.mode, Mode::Leased);
    let mut modes = Vec::new();
    for _ in 0..250 {
        let admission = world.check("closed", 1).await;
        modes.push(admission.answer.mode);
        world.advance(Micros::from_millis(10)).await;
    }
    let leased = modes.iter().filter(|mode| **mode == Mode::Leased).count();
    assert!(leased > 5, "{leased}");
    let last = &modes[modes.len() - 20..];
    assert!(last.iter().all(|mode| *mode == Mode::Deny), "{last:?}");
    world.store.0.is_silent.store(false, Ordering::Relaxed);
    world.advance(Micros::SECOND).await;
    assert!(world.check("closed", 1).await.way.passes());
}

#[tokio::test]
async fn a_share_counts_what_was_leased() {
    let world = World::hot("hot").await;
    world.advance(Micros::from_secs(20)).await;
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += world.check("hot", 1).await.answer.decision.granted();
    }
    world.store.0.is_silent.store(true, Ordering::Relaxed);
    for _ in 0..3_000 {
        admitted += world.check("hot", 1).await.answer.decision.granted();
    }
    assert!(admitted <= 1_000, "{admitted}");
    assert!(admitted >= 900, "{admitted}");
}

#[tokio::test]
async fn a_share_counts_what_was_leased_of_two_rules() {
    let world = World::hot("both").await;
    let mut admitted = 20;
    while world.left() < 40 {
        admitted += world.check("both", 1).await.answer.decision.granted();
        world.advance(Micros::from_millis(1)).await;
    }
    world.store.0.is_silent.store(true, Ordering::Relaxed);
    let mut leased = 0;
    for _ in 0..3_000 {
        let answer = world.check("both", 1).await.answer;
        admitted += answer.decision.granted();
        leased += u64::from(answer.mode == Mode::Leased && answer.decision.allowed());
    }
    assert!(leased >= 30, "{leased} of what was out when the store fell silent");
    assert!((900..=1_000).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn a_share_counts_what_was_leased_in_the_window_in_which_it_was_spent() {
    let world = World::hot("window").await;
    world.advance(Micros::from_millis(890)).await;
    let before = world.engine.turn();
    world.advance(Micros::from_millis(20)).await;
    let mut admitted = 0;
    while world.check("window", 1).await.answer.mode == Mode::Leased && admitted < 10 {
        admitted += 1;
    }
    assert_eq!(admitted, 10);
    world.store.0.is_silent.store(true, Ordering::Relaxed);
    // It came in before the window began, and finds out that the store does not answer.
    let verb = Verb::Check { cost: Cost::new(500).unwrap() };
    let late = before.decide(&Request::new("window", Some(b"k"), verb)).await.unwrap();
    assert_eq!(late.answer.mode, Mode::Local);
    for _ in 0..2_000 {
        let answer = world.check("window", 1).await.answer;
        admitted += u64::from(answer.decision.allowed());
    }
    assert!((900..=1_000).contains(&admitted), "{admitted}");
}

#[tokio::test]
async fn a_window_that_begins_is_asked_for_at_once() {
    let world = World::hot("window").await;
    for second in 1..10 {
        while world.engine.now() < START.plus(Micros::from_secs(second)) {
            world.check("window", 6).await;
            world.advance(Micros::from_millis(5)).await;
        }
        let mut waited = 0;
        while !world.check("window", 6).await.answer.decision.allowed() {
            world.advance(Micros::from_millis(5)).await;
            waited += 5;
        }
        assert!(waited <= 15, "{waited} ms into the window");
    }
}

#[tokio::test]
async fn a_store_that_is_given_up_ends_the_pace_of_a_lease() {
    let world = World::hot("hot").await;
    for _ in 0..3_000 {
        world.check("hot", 1).await;
    }
    assert_eq!(world.check("hot", 1).await.answer.mode, Mode::Remembered);
    world.store.0.is_silent.store(true, Ordering::Relaxed);
    for _ in 0..3_000 {
        world.check("off", 1).await;
    }
    assert!(world.engine.is_without_store());
    assert_eq!(world.check("hot", 1).await.answer.mode, Mode::Local);
}

#[tokio::test]
async fn a_give_back_closes_the_breaker_only_if_its_answer_came_in_the_time_of_a_request() {
    for (took_ms, is_given_up) in [(40, false), (300, true)] {
        let world = World::hot("hot").await;
        world.store.0.is_silent.store(true, Ordering::Relaxed);
        for _ in 0..3_000 {
            world.check("off", 1).await;
        }
        assert!(world.engine.is_without_store());
        world.store.0.is_silent.store(false, Ordering::Relaxed);
        let (held, asked) = (world.store.held("hot"), world.asked());
        let stall = (Arc::clone(&world.clock), Micros::from_millis(took_ms));
        *world.store.0.stall.lock().unwrap() = Some(stall);
        while world.store.held("hot") > 0 {
            world.advance(Micros::from_millis(100)).await;
        }
        assert!(held > 0);
        assert_eq!(world.asked(), asked);
        assert_eq!(world.engine.is_without_store(), is_given_up, "{took_ms} ms");
    }
}

#[tokio::test]
async fn a_look_counts_the_permits_that_are_leased_here() {
    let world = World::hot("hot").await;
    // Another caller takes all permits that the store would still grant to others.
    let free = world.ask("hot", Verb::Peek { cost: Cost::ONE }).await.answer.decision.remaining;
    let rules = world.engine.policies();
    let rules = rules.resolve("hot").unwrap().rules().clone();
    let verb = Verb::AtMost { cost: Cost::new(free).unwrap() };
    let other = StoreRequest {
        policy: "hot",
        key: b"k",
        rules: rules.set(),
        verb: &verb,
        origin: sluicegate_store::RuleOrigin::default(),
        quota: sluicegate_store::Quota::of("hot"),
    };
    world.store.decide(&other, &Moment::new(world.engine.now())).await.unwrap();
    let look = world.ask("hot", Verb::Peek { cost: Cost::ONE }).await;
    assert!(look.answer.decision.allowed(), "{look:?}");
    let more = Cost::new(u64::from(world.left()) + 1).unwrap();
    let look = world.ask("hot", Verb::Peek { cost: more }).await;
    assert!(!look.answer.decision.allowed(), "{look:?}");
}

#[tokio::test]
async fn a_store_that_does_not_answer_a_look_stays_given_up() {
    let world = World::hot("hot").await;
    assert!(world.engine.has_fallback());
    world.store.0.is_silent.store(true, Ordering::Relaxed);
    for _ in 0..3_000 {
        world.check("off", 1).await;
    }
    let request = Request::new("off", Some(b"k"), Verb::Check { cost: Cost::ONE });
    world.engine.turn().check_store(&request).await.unwrap_err();
    assert!(world.engine.is_without_store());
}

#[tokio::test]
async fn a_request_that_waited_for_a_busy_store_is_shed_and_does_not_ask_it_as_well() {
    let world = World::hot("hot").await;
    world.advance(Micros::from_millis(5)).await;
    world.store.0.is_busy.store(true, Ordering::Relaxed);
    let asked = world.asked();
    let mut waited = world.check("hot", 6).await;
    while waited.answer.mode == Mode::Leased {
        waited = world.check("hot", 6).await;
    }
    assert_eq!((waited.answer.mode, world.asked()), (Mode::Shed, asked));
}

#[tokio::test]
async fn one_that_goes_away_while_it_waits_leaves_its_permits() {
    let world = World::hot("hot").await;
    world.advance(Micros::from_millis(5)).await;
    let held = world.left();
    let mut waits = Box::pin(world.check("hot", 6));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut others = 0;
    while waits.as_mut().poll(&mut cx).is_ready() {
        waits = Box::pin(world.check("hot", 6));
        others += 1;
    }
    drop(waits);
    world.settle().await;
    assert!(others * 6 <= held, "{others} of {held}");
    // They were not used: all permits of the lease can still be taken.
    let left = u64::from(world.left());
    let spent = world.ask("hot", Verb::AtMost { cost: Cost::new(left.max(1)).unwrap() }).await;
    assert_eq!(spent.answer.decision.granted(), left.max(1));
}
