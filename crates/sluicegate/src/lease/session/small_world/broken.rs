//! Protocols with one fault: the checker must refute each.

use sluicegate_kernel::Micros;
use sluicegate_kernel::lease::{Leased, Message, Number, Record};

use super::{NEVER_MORE, SMALLEST, Small};

/// A fault of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The store executes a message although a later one has overtaken it, or it was executed before.
    DoesAnyMessage,
    /// Permits that lapse are given back instead of charged.
    LapsesAreGivenBack,
    /// A holder accepts an answer to an earlier message as that to its last one.
    HearsAnyAnswer,
    /// A holder uses permits past their end.
    UsesPastTheEnd,
}

impl Broken {
    /// Changes the store by the fault, before it executes `message`.
    pub(super) fn prepare(self, store: &mut Leased, message: Option<&Message>, now: Micros) {
        let records = &mut store.leases.records;
        match (self, message) {
            (Self::DoesAnyMessage, Some(message)) => {
                let own = |record: &&mut Record| record.holder == message.holder;
                if let Some(record) = records.iter_mut().find(own)
                    && record.number >= message.number
                {
                    record.number = Number(message.number.0 - 1);
                }
            }
            (Self::LapsesAreGivenBack, _) => records.retain(|record| record.deadline > now),
            _ => {}
        }
    }
}

#[test]
fn a_protocol_that_does_one_thing_wrong_is_refuted() {
    let broken = [
        Broken::DoesAnyMessage,
        Broken::LapsesAreGivenBack,
        Broken::HearsAnyAnswer,
        Broken::UsesPastTheEnd,
    ];
    for broken in broken {
        let (_, wrong) = Small { broken: Some(broken), ..SMALLEST }.explore();
        let wrong = wrong.unwrap_or_else(|| panic!("{broken:?} is not refuted"));
        assert!(wrong.starts_with(NEVER_MORE), "{broken:?}: {wrong}");
        println!("{broken:?}: {wrong}");
    }
}
