//! The promises that the simulator checks, by the names that reports use.

use std::fmt;

macro_rules! invariants {
    ($($name:ident: $promise:literal,)+) => {
        /// A promise that every history keeps.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Invariant {
            $(#[doc = $promise] $name,)+
        }

        impl Invariant {
            /// The promise, as a clause.
            pub const fn promise(self) -> &'static str {
                match self {
                    $(Self::$name => $promise,)+
                }
            }
        }
    };
}

invariants! {
    FleetBound: "the fleet admits no more than `docs/exactness.md` allows",
    StoreWithinLimit: "the store has no more in use than the limit",
    LeasesAccountedFor: "the store stands for what a node holds",
    LapsedPermitsUnused: "a node takes nothing that has lapsed",
    QuietFleetIsOneLimiter: "where nothing goes wrong, as much is admitted as by one limiter",
    LostWritesCostLittle: "what lost writes cost on leased keys, of all histories together",
    RefusalEndsAtItsRetry: "a refusal holds until its `retry_after`, and no longer",
    DecisionInTime: "a decision takes five deadlines at most",
    LookChangesNothing: "a look and a refusal change nothing",
    IdleKeysVanish: "nothing stays of what nobody asks for",
    HoldersAreBounded: "a key has 64 holders at most",
    AnswerIsTrue: "an answer says by whose word it is, and a busy store is not replaced",
    GivenBackOnce: "no more is given back or settled than was taken",
    LostStoreIsProbed: "a store that is given up is asked now and then",
    ChargedAtMostAdmitted: "no more is charged than was admitted",
    HotKeyIsLeased: "a hot key is leased",
    StoppedNodeReturnsLeases: "a node that stops gives its leases back",
    SilentStoreIsGivenUp: "a store that answers nothing is given up",
    MessageKeepsWhatIsUsable: "a message keeps no more than its node can use",
    UnpaidRestIsBilled: "the unpaid rest of a debt is part of the next that is sent",
    AnsweringStoreIsKept: "a store that answers is not given up, nor any more once it answers about a lease",
    DebtBeforeLease: "what is owed is paid before permits are used",
    ShareBeginsAtReport: "a share begins from what the store said last",
    RequestCarriesDebt: "a request that takes permits carries all that is owed",
    AnswerNamesItsLimit: "an answer names the limit of its rule",
    OwedUntilPaid: "what was admitted alone is owed until it is paid",
    RefusalIsRemembered: "a node remembers what was refused, and asks no more for it",
    ForgetfulStoreIsReminded: "a store that has forgotten is reminded of a key before it is asked",
    PermitsKeepTheirRules: "permits are used by the rules by which they were asked for",
    HolderPaysWhatItAdmitted: "a holder is charged for what it admitted, and for no more",
    LapsedIsUsedByDeadline: "what lapses counts as used by its deadline",
    RefundFrees: "what is given back is no longer in use",
    QuotaHolds: "edits and late messages admit no more of a quota than its largest limit and one permit",
    SlowNetworkBurnsNoQuota: "of a quota behind a slow network no more is gone than was admitted",
    ScriptsEqualKernel: "the scripts of Redis answer as the kernel does",
    HealedFleetIsOneLimiter: "after the last fault, as much is admitted as by one limiter",
    PermitsWithinLimit: "no more permits are held than the limit, and what is released or has lapsed is free",
    TurnKept: "no permit is granted that a request needs which came before and still waits",
    NoPlaceLeaks: "a place in line ends with its request, and free permits go to the first in line within a second",
    DebtsAreCharged: "what is owed is charged once the store answers",
}

/// The name, as in the code.
impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
