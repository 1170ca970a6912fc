//! Notes on budgets that refused a charge, until they have permits again.
//!
//! A refused charge changes no usage, so a budget that is used up and one that has refused look alike. A caller
//! that charges afterwards, as gateways do that count tokens of answers, lets one request overdraw the budget,
//! and refuses the next: it has to distinguish the two. So the refusal is noted in the same store, beside the
//! budget, as a budget of one permit that ends when the refusing rule has permits again:
//!
//! | rule | the note ends |
//! |---|---|
//! | `fixed_window` of the epoch, or of a calendar | with the same window |
//! | smooth `token_bucket`, `leaky_bucket`, `smooth_bursty` | when one permit would be back of a bucket that was empty when it refused |
//! | other rules whose span is known | when the span has passed |
//! | `sliding_window`, `concurrency` | there is no note: a used-up budget counts as refused |
//!
//! A note that outlasts a budget's emptiness does no harm: it is read only while nothing is left. While the
//! store does not answer nothing is noted, and a used-up budget counts as refused.

use std::sync::LazyLock;

use quick_cache::sync::Cache;
use sluicegate_kernel::algorithm::WindowKind;
use sluicegate_kernel::lease::Leasing;
use sluicegate_kernel::{
    Cost, Decision, FixedWindow, Micros, NamedRule, Outcome, Retry, Rule, RuleSet, Verb,
};
use sluicegate_policy::Rules;
use sluicegate_store::{Quota, RuleOrigin, Store, StoreError};

use super::conditions::Conditions;
use super::request::ResolvedBudget;
use super::{Answer, Mode, Observer, Request, Ruling, Turn};

/// The name under which stores keep the notes: capital letters are in no policy's name.
const REFUSED: &str = "Refused";

/// The quota of keys of the notes, in a memory store. Beyond it new notes share one.
const QUOTA: Quota<'static> = Quota::of(REFUSED);

/// Most windows that are remembered as rules, some 500 bytes each: policies have a handful. One that fell out is made
/// anew, and its notes stay.
const WINDOWS_MAX: usize = 1_024;

/// One permit per window, of all engines: a store expects the same `Arc` of rules each time.
static ONCE: LazyLock<Cache<WindowKind, Rules>> = LazyLock::new(|| Cache::new(WINDOWS_MAX));

const LOOK: Verb = Verb::Peek { cost: Cost::ONE };

impl<S: Store + 'static, O: Observer> Turn<'_, S, O> {
    /// Notes in the store that the budget of `request` refused a charge with `answer`, unless a permit is left
    /// of it. The note is for all engines on the store, and ends when the refusing rule has permits again. A
    /// refusal that is noted already costs one call a second at most.
    ///
    /// Nothing is noted while the store does not answer. The observer does not see this.
    pub async fn note_refusal(&self, request: &Request<'_>, answer: &Answer) {
        if !is_of_store(answer.mode) {
            return;
        }
        let Ok(budget) = ResolvedBudget::of(&self.policies, request, self.now) else { return };
        let Some((rule, retry)) = self.refusing(request, &budget, answer).await else { return };
        let NamedRule { name, rule } = &budget.rules.set().rules()[rule];
        let Some(rules) = window_of(rule).as_ref().and_then(rules_of) else { return };
        let key = key_of(&budget, name);
        let note = noted(&key, &rules);
        let verb = Verb::Check { cost: Cost::ONE };
        let Ok(answer) = self.ask_note(&note, &verb).await else { return };
        let Decision { outcome, reset_after, .. } = answer.verdict.decision;
        // A window that ended between the two calls is not the one that refused; so the next one is not
        // marked. In the same window both report the same time, except for the duration of a call.
        let is_new = matches!(outcome, Outcome::Allow { .. });
        if is_new && is_aligned(rule) && retry.get() < reset_after.get() / 2 {
            self.ask_note(&note, &Verb::Reset).await.ok();
        }
    }

    /// Returns whether the budget of `request`, in which `answer` found nothing left, has refused a charge since
    /// it was used up. `true` if the store does not answer, and for rules that have no notes.
    pub async fn has_refused(&self, request: &Request<'_>, answer: &Answer) -> bool {
        if !is_of_store(answer.mode) {
            return true;
        }
        let Ok(budget) = ResolvedBudget::of(&self.policies, request, self.now) else { return true };
        let rules = budget.rules.set().rules();
        for (place, NamedRule { name, rule }) in rules.iter().enumerate() {
            let Some(once) = window_of(rule).as_ref().and_then(rules_of) else {
                if place == answer.rule {
                    return true;
                }
                continue;
            };
            let key = key_of(&budget, name);
            let answer = self.ask_note(&noted(&key, &once), &LOOK).await;
            if answer.is_err() || answer.is_ok_and(|answer| !answer.verdict.decision.allowed()) {
                return true;
            }
        }
        false
    }

    /// Returns the index of the rule of `budget` that has nothing left, and the time until it has; `None`: all have.
    async fn refusing(
        &self,
        request: &Request<'_>,
        budget: &ResolvedBudget<'_>,
        answer: &Answer,
    ) -> Option<(usize, Micros)> {
        let refused = match (&request.verb, answer.decision.outcome) {
            (&Verb::Check { cost: Cost::ONE }, Outcome::Deny { retry }) => (answer.rule, retry),
            _ => {
                let alone = Conditions { lease: budget.lease(), ..Conditions::default() };
                let looked = self.engine.ask(budget, &LOOK, alone, self.now).await.ok()?;
                let Outcome::Deny { retry } = looked.verdict.decision.outcome else { return None };
                (looked.verdict.rule, retry)
            }
        };
        match refused {
            (rule, Retry::After(retry)) => Some((rule, retry)),
            (_, Retry::Never) => None,
        }
    }

    /// Asks the store about a note. Only it knows the notes, so without it there is an error.
    async fn ask_note(&self, note: &ResolvedBudget<'_>, verb: &Verb) -> Result<Ruling, StoreError> {
        self.engine.ask(note, verb, Conditions::default(), self.now).await
    }
}

/// Returns whether an answer in this mode reflects the store.
const fn is_of_store(mode: Mode) -> bool {
    matches!(mode, Mode::Store | Mode::Leased | Mode::Remembered)
}

/// Returns the window of a note about `rule`; `None`: the rule has no notes.
fn window_of(rule: &Rule) -> Option<WindowKind> {
    if let Rule::FixedWindow(window) = rule {
        return Some(window.kind().clone());
    }
    let span = rule.window()?;
    let flows = match rule {
        Rule::TokenBucket(_) => matches!(rule.leasing(), Leasing::Flows(_)),
        Rule::LeakyBucket(_) | Rule::SmoothBursty(_) => true,
        _ => false,
    };
    let parts = if flows { rule.limit().max(1) } else { 1 };
    Some(WindowKind::First(Micros::new(span.get().div_ceil(parts).max(1))))
}

/// Returns whether a note about `rule` ends with a window of the rule, and not a fixed time after its beginning.
fn is_aligned(rule: &Rule) -> bool {
    let Rule::FixedWindow(window) = rule else { return false };
    matches!(window.kind(), WindowKind::Epoch(_) | WindowKind::Calendar(..))
}

/// Returns the rules of one permit in each window of this kind.
fn rules_of(kind: &WindowKind) -> Option<Rules> {
    let rules = || {
        let once = FixedWindow::new(1, kind.clone()).map_err(drop)?;
        Rules::new(RuleSet::single("once", Rule::from(once))).map_err(drop)
    };
    ONCE.get_or_insert_with(kind, rules).ok()
}

/// Returns the budget that holds the note with this key.
fn noted<'a>(key: &'a [u8], rules: &'a Rules) -> ResolvedBudget<'a> {
    let (policy, origin) = (None, RuleOrigin::Caller);
    ResolvedBudget { policy, name: REFUSED.into(), key, rules, origin, quota: QUOTA }
}

/// Returns a key that is unique to the rule of this budget: names have no `/`, except that of an app that brings
/// limits along, and no line feed.
fn key_of(budget: &ResolvedBudget<'_>, rule: &str) -> Vec<u8> {
    [budget.name.as_bytes(), rule.as_bytes(), budget.key].join(&b'\n')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate_kernel::algorithm::CalendarUnit;
    use sluicegate_kernel::{Rate, TokenBucket};
    use sluicegate_policy::{Document, PolicySet};

    use super::*;
    use crate::engine::Engine;

    fn window(rule: impl Into<Rule>) -> Option<WindowKind> {
        window_of(&rule.into())
    }

    #[test]
    fn a_note_ends_with_the_window_or_when_one_permit_is_back() {
        let minute = WindowKind::Epoch(Micros::from_secs(60));
        assert_eq!(window(FixedWindow::new(9, minute.clone()).unwrap()), Some(minute));
        let month = WindowKind::Calendar(CalendarUnit::Month, "UTC".into());
        assert_eq!(window(FixedWindow::new(9, month.clone()).unwrap()), Some(month.clone()));
        assert!(rules_of(&month).is_some());
        // Three a second: one is back after a third of one, rounded up.
        let bucket = TokenBucket::new(Rate::new(3, Micros::SECOND).unwrap(), 12).unwrap();
        assert_eq!(window(bucket.clone()), Some(WindowKind::First(Micros::new(333_334))));
        let stepped = window(bucket.refilled_by_interval());
        assert_eq!(stepped, Some(WindowKind::First(Micros::from_secs(4))));
    }

    /// An engine whose policy `p` has two permits a minute.
    fn engine() -> Arc<Engine> {
        let text = "policies: [{ name: p, rules: [{ fixed_window: { limit: 2, window: 1m } }] }]";
        let document = Document::parse(text).expect("it is a document");
        Arc::new(Engine::in_memory(PolicySet::new(document)))
    }

    const CHECK: Verb = Verb::Check { cost: Cost::ONE };

    /// Asks for three permits at `now`, and returns the last answer, a refusal.
    async fn refused(engine: &Arc<Engine>, now: Micros) -> Answer {
        let (turn, request) = (engine.turn_at(now), Request::new("p", Some(b"k"), CHECK));
        for _ in 0..2 {
            assert!(turn.decide(&request).await.expect("it is decided").way.passes());
        }
        let refused = turn.decide(&request).await.expect("it is decided");
        assert!(!refused.way.passes());
        refused.answer
    }

    #[tokio::test]
    async fn a_refusal_is_noted_until_its_window_ends() {
        let (engine, request) = (engine(), Request::new("p", Some(b"k"), CHECK));
        let (before, end) = (Micros::new(59_999_999), Micros::from_secs(60));
        let answer = refused(&engine, before).await;
        assert!(!engine.turn_at(before).has_refused(&request, &answer).await);
        engine.turn_at(before).note_refusal(&request, &answer).await;
        assert!(engine.turn_at(before).has_refused(&request, &answer).await);
        assert!(!engine.turn_at(end).has_refused(&request, &answer).await);
    }

    #[tokio::test]
    async fn a_refusal_of_a_window_that_has_ended_is_noted_in_no_other() {
        let (engine, request) = (engine(), Request::new("p", Some(b"k"), CHECK));
        let answer = refused(&engine, Micros::new(59_999_000)).await;
        let next = engine.turn_at(Micros::new(60_001_000));
        next.note_refusal(&request, &answer).await;
        assert!(!next.has_refused(&request, &answer).await);
    }

    #[tokio::test]
    async fn without_the_store_nothing_is_noted_and_what_is_used_up_counts_as_refused() {
        let (engine, request) = (engine(), Request::new("p", Some(b"k"), CHECK));
        let answer = refused(&engine, Micros::SECOND).await;
        let local = Answer { mode: Mode::Local, ..answer.clone() };
        let turn = engine.turn_at(Micros::SECOND);
        turn.note_refusal(&request, &local).await;
        assert!(!turn.has_refused(&request, &answer).await);
        assert!(turn.has_refused(&request, &local).await);
    }

    #[test]
    fn no_two_budgets_have_the_same_note() {
        let key = |name: &'static str, key: &'static [u8], rule| {
            let rules = rules_of(&WindowKind::Epoch(Micros::SECOND)).expect("it is a window");
            key_of(&ResolvedBudget { name: name.into(), ..noted(key, &rules) }, rule)
        };
        assert_ne!(key("a", b"k", "r"), key("a", b"l", "r"));
        assert_ne!(key("a", b"k", "r"), key("a", b"k", "s"));
        assert_ne!(key("a", b"r\nk", "r"), key("a", b"k", "r"));
    }
}
