//! The promises that the simulator checks, by the numbers that reports name.

/// Each invariant, and the promise behind it.
const PROMISES: &[(&str, &str)] = &[
    ("I1", "the fleet admits no more than `docs/exactness.md` allows"),
    ("I2", "the store has no more in use than the limit"),
    ("I3", "the store stands for what a node holds"),
    ("I4", "a node takes nothing that has lapsed"),
    ("I5", "where nothing goes wrong, as much is admitted as by one limiter"),
    ("I7", "what lost writes cost on leased keys, of all histories together"),
    ("I8", "a refusal holds until its `retry_after`, and no longer"),
    ("I9", "a decision takes five deadlines at most"),
    ("I10", "a look and a refusal change nothing"),
    ("I11", "nothing stays of what nobody asks for"),
    ("I12", "a key has 64 holders at most"),
    ("I13", "an answer says by whose word it is, and a busy store is not replaced"),
    ("I14", "no more is given back or settled than was taken"),
    ("I16", "a store that is given up is asked now and then"),
    ("I17", "no more is charged than was admitted"),
    ("I18", "a hot key is leased"),
    ("I19", "a node that stops gives its leases back"),
    ("I20", "a store that answers nothing is given up"),
    ("I21", "a message keeps no more than its node can use"),
    ("I22", "what was not paid of a bill is on the next"),
    ("I23", "a store that answers is not given up, nor any more once it answers about a lease"),
    ("I24", "what is owed is paid before permits are used"),
    ("I25", "a share begins from what the store said last"),
    ("I26", "a request that takes permits carries all that is owed"),
    ("I27", "an answer names the limit of its rule"),
    ("I28", "what was admitted alone is owed until it is paid"),
    ("I29", "a node remembers what was refused, and asks no more for it"),
    ("I30", "a store that has forgotten is reminded of a key before it is asked"),
    ("I31", "permits are used by the rules by which they were asked for"),
    ("I32", "a holder is charged for what it admitted, and for no more"),
    ("I33", "what lapses counts as used by its deadline"),
    ("I34", "what is given back is no longer in use"),
    ("I35", "edits and late messages admit no more of a quota than its largest limit"),
    ("I36", "of a quota behind a slow network no more is gone than was admitted"),
    ("I37", "the scripts of Redis answer as the kernel does"),
    ("I38", "after the last fault, as much is admitted as by one limiter"),
    ("I39", "no more permits are held than the limit, and what is released or has lapsed is free"),
    ("debts", "what is owed is charged once the store answers"),
];

/// The promise of an invariant.
///
/// # Panics
/// If there is none of that name.
pub(crate) fn promise_of(invariant: &str) -> &'static str {
    let promise = PROMISES.iter().find(|(name, _)| *name == invariant);
    promise.unwrap_or_else(|| panic!("{invariant} is no invariant")).1
}
