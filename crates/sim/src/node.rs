//! A node: the real engine, its clock, and its end of the network.

use std::num::NonZeroU32;
use std::sync::Arc;

use sluicegate::internals::kernel::RuleSet;
use sluicegate::internals::{Explanation, SettleError, Settled, Settlement};
use sluicegate::policy::{Document, PolicySet};
use sluicegate::{
    Admission, Cost, DecideError, Engine, Micros, Patience, PermitId, Request, StoreFailure, Verb,
};

use crate::clock::{BEGIN, SimClock};
use crate::plan::{Arrival, Ask, Hold, HoldWait, MS, Plan};
use crate::wire::{Asker, SimStore, asker};

/// Keys that an engine remembers: more than a history has, with the ids of all settlements.
const KEYS_REMEMBERED: usize = 4_096;

/// A process with an engine.
#[derive(Debug)]
pub(crate) struct NodeProcess {
    pub(crate) engine: Arc<Engine<SimStore>>,
    pub(crate) store: SimStore,
    pub(crate) clock: Arc<SimClock>,
    /// The number of the process; events of an earlier one are void.
    pub(crate) life: u32,
    pub(crate) is_up: bool,
    /// The process stands still until then, µs.
    pub(crate) paused_until: u64,
    pub(crate) version: usize,
    /// Answers of the store that it received, for each key.
    pub(crate) heard: Vec<u64>,
    /// The rules by which it has asked for permits to lease, for each key.
    pub(crate) asked_by: Vec<Vec<Arc<RuleSet>>>,
    /// The number of nodes by which the engine divides a limit.
    pub(crate) divides_by: u64,
    /// Number of faults under way that remove the policy from it.
    pub(crate) policy_removals: u32,
}

/// A step of a client with its permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitStep {
    /// The client acquires the permit.
    Acquire,
    /// The client renews the permit, and so many times more.
    Renew { left: u8 },
    /// The client releases the permit.
    Release,
}

/// The result of a task.
#[derive(Debug)]
pub(crate) enum Done {
    Decided(Arrival, Result<Admission, DecideError>),
    /// The results of requests that were made together.
    DecidedEach(Vec<(Arrival, Asker, Result<Admission, DecideError>)>),
    Explained(Arrival, Result<Explanation, DecideError>),
    Refunded(Arrival, u64, Result<Admission, DecideError>),
    Settled(Arrival, Result<Settled, SettleError>),
    /// A step of a client that holds a permit.
    Held(Arrival, PermitStep, Result<Admission, DecideError>),
    /// The number of keys with debts that are left.
    Paid(usize),
    /// All leases are given back.
    Returned,
}

/// Compiles all versions of the policy.
pub(crate) fn policies(plan: &Plan) -> Vec<PolicySet> {
    let compiled = |version| {
        let text = plan.document(version);
        let document = Document::parse(&text);
        PolicySet::new(document.unwrap_or_else(|errors| panic!("{errors}\n{text}")))
    };
    (0..plan.versions.len()).map(compiled).collect()
}

/// Returns when a version counts as taken over, µs since the epoch: the same for all nodes.
pub(crate) fn since(plan: &Plan, version: usize) -> Micros {
    let fault = plan
        .faults
        .iter()
        .find(|fault| matches!(fault.kind, crate::plan::FaultKind::Policy(of) if of == version));
    Micros::new(BEGIN + fault.map_or(0, |fault| fault.at / MS * MS + MS))
}

impl NodeProcess {
    /// Starts a process on the machine of `clock` with this version of the policies.
    pub(crate) fn start(
        plan: &Plan,
        policies: &[PolicySet],
        version: usize,
        clock: Arc<SimClock>,
        life: u32,
    ) -> Self {
        let store = SimStore::new(plan.calls_max);
        let nodes = u32::try_from(plan.nodes).ok().and_then(NonZeroU32::new);
        let failure = StoreFailure {
            nodes: nodes.expect("there is a node at least"),
            keys_max: KEYS_REMEMBERED,
        };
        let engine = Engine::new(PolicySet::default(), store.clone(), Arc::clone(&clock) as _)
            .with_fallback(failure);
        let engine = match plan.leases {
            true => engine.with_leases(Micros::new(plan.lease_wait_us())),
            false => engine,
        };
        engine.set_policies_as_of(policies[version].clone(), |_| Some(since(plan, version)));
        Self {
            engine: Arc::new(engine),
            store,
            clock,
            life,
            is_up: true,
            paused_until: 0,
            version,
            heard: vec![0; plan.keys],
            asked_by: vec![Vec::new(); plan.keys],
            divides_by: plan.nodes as u64,
            policy_removals: 0,
        }
    }

    /// Puts a version in force.
    pub(crate) fn set_version(&mut self, plan: &Plan, policies: &[PolicySet], version: usize) {
        if version > self.version {
            self.version = version;
            self.put_in_force(plan, policies);
        }
    }

    /// Removes the policy.
    pub(crate) fn remove_policy(&mut self) {
        self.policy_removals += 1;
        self.engine.set_policies(PolicySet::default());
    }

    /// Restores the policy, unless another fault removes it.
    pub(crate) fn restore_policy(&mut self, plan: &Plan, policies: &[PolicySet]) {
        self.policy_removals = self.policy_removals.saturating_sub(1);
        self.put_in_force(plan, policies);
    }

    fn put_in_force(&self, plan: &Plan, policies: &[PolicySet]) {
        let version = self.version;
        if self.policy_removals == 0 {
            self.engine
                .set_policies_as_of(policies[version].clone(), |_| Some(since(plan, version)));
        }
    }
}

/// Makes the request of `arrival`.
pub(crate) async fn decide(engine: Arc<Engine<SimStore>>, arrival: Arrival) -> Done {
    let key = key_name(arrival.key);
    let request = Request::new("p", Some(&key), verb(arrival.ask));
    let request = match arrival.ask {
        Ask::Hold(Hold { wait, is_unnamed, .. }) => {
            let patience = match wait {
                HoldWait::No => Patience::None,
                HoldWait::Policy => Patience::Policy,
                HoldWait::UpTo(us) => Patience::Permit(Micros::new(us)),
            };
            Request { is_permit_unnamed: is_unnamed, ..request.with_patience(patience) }
        }
        _ => request,
    };
    let turn = engine.turn();
    match arrival.ask {
        Ask::Explain(_) => Done::Explained(arrival, turn.explain(&request, None).await),
        Ask::Hold(_) => Done::Held(arrival, PermitStep::Acquire, turn.decide(&request).await),
        _ => Done::Decided(arrival, turn.decide(&request).await),
    }
}

/// Makes the requests of `arrivals` together.
pub(crate) async fn decide_each(engine: Arc<Engine<SimStore>>, arrivals: Vec<Arrival>) -> Done {
    let keys: Vec<_> = arrivals.iter().map(|arrival| key_name(arrival.key)).collect();
    let request = |(arrival, key): (&Arrival, _)| Request::new("p", Some(key), verb(arrival.ask));
    let requests: Vec<_> =
        arrivals.iter().zip(keys.iter().map(|key| &key[..])).map(request).collect();
    let decided = engine.turn().decide_each(&requests).await;
    let each = arrivals.into_iter().zip(&keys).zip(decided);
    Done::DecidedEach(each.map(|((arrival, key), said)| (arrival, asker(key), said)).collect())
}

/// Returns the request to the engine.
fn verb(ask: Ask) -> Verb {
    let cost = |cost| Cost::new(cost).expect("costs are at least 1");
    match ask {
        Ask::Check(of) | Ask::CheckAndRefund(of, _) | Ask::CheckAndSettle(of, _) => {
            Verb::Check { cost: cost(of) }
        }
        Ask::AtMost(of) => Verb::AtMost { cost: cost(of) },
        Ask::Reserve(of, max_wait) => {
            Verb::Reserve { cost: cost(of), max_wait: Micros::new(max_wait) }
        }
        Ask::Peek(of) | Ask::Explain(of) => Verb::Peek { cost: cost(of) },
        Ask::Reset => Verb::Reset,
        Ask::Hold(Hold { id, cost: of, .. }) => {
            Verb::Acquire { cost: cost(of), permit: PermitId(id.into()) }
        }
    }
}

/// Renews or releases the permit of `arrival`.
pub(crate) async fn hold(
    engine: Arc<Engine<SimStore>>,
    arrival: Arrival,
    hold: Hold,
    step: PermitStep,
) -> Done {
    let (key, permit) = (key_name(arrival.key), PermitId(hold.id.into()));
    let verb = match step {
        PermitStep::Acquire => unreachable!("a permit is acquired by a request that arrives"),
        PermitStep::Renew { .. } => Verb::Renew { permit },
        PermitStep::Release => Verb::Release { permit },
    };
    let request = Request::new("p", Some(&key), verb);
    Done::Held(arrival, step, engine.turn().decide(&request).await)
}

/// Gives `permits` back.
pub(crate) async fn refund(engine: Arc<Engine<SimStore>>, arrival: Arrival, permits: u64) -> Done {
    let key = key_name(arrival.key);
    let verb = Verb::Refund { cost: Cost::new(permits).expect("at least 1") };
    let request = Request::new("p", Some(&key), verb);
    Done::Refunded(arrival, permits, engine.turn().decide(&request).await)
}

/// Settles a check at `cost`.
pub(crate) async fn settle(engine: Arc<Engine<SimStore>>, arrival: Arrival, id: u64) -> Done {
    let Ask::CheckAndSettle(charged, cost) = arrival.ask else {
        unreachable!("only such a check is settled")
    };
    let (key, id) = (key_name(arrival.key), id.to_be_bytes());
    let charged = Cost::new(charged).expect("at least 1");
    let settlement = Settlement { policy: "p", key: Some(&key), app: None, id: &id, charged, cost };
    Done::Settled(arrival, engine.turn().settle(&settlement).await)
}

/// Sends the messages of leases that are due.
pub(crate) async fn keep_leases(engine: Arc<Engine<SimStore>>) -> Done {
    engine.keep_leases().await;
    Done::Returned
}

/// Passes calls of requests that wait for permits on.
pub(crate) async fn pass_calls(engine: Arc<Engine<SimStore>>) -> Done {
    engine.pass_calls().await;
    Done::Returned
}

/// Pays the debts of the node.
pub(crate) async fn pay(engine: Arc<Engine<SimStore>>) -> Done {
    Done::Paid(engine.pay_debts().await)
}

/// Returns the name of a key.
pub(crate) fn key_name(key: usize) -> [u8; 1] {
    [b'a' + u8::try_from(key).expect("there are few")]
}
