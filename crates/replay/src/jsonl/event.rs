//! What the fields of a line mean: an event, or what is wrong with it.

use sluicegate::{Cost, Micros};
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_kernel::param::within;
use sluicegate_text::fields::{Field, Fields};
use sluicegate_text::say::one_line;

use super::names::Op;
use super::{Act, Event};
use crate::error::EventError;

/// Longest name of a permit: that of a key.
const ID_BYTES_MAX: usize = 1024;

/// The event that `fields` make.
pub(super) fn event<'a>(fields: &mut Fields<'a>) -> Result<Event<'a>, EventError> {
    let op = fields.op.as_deref().map_or(Ok(Op::default()), op_named)?;
    let missing = |field| EventError::Missing { field, op };
    let at = fields.at_us.ok_or_else(|| missing(Field::AtUs))?;
    let at = within("at_us", at, 0, SPAN_MAX_US).map(Micros::new)?;
    refuse_misplaced(fields, op)?;
    let policy = fields.policy.take();
    let cost = fields.cost.map_or(Ok(Cost::ONE), Cost::new)?;
    let max_wait =
        within("max_wait_us", fields.max_wait_us.unwrap_or(SPAN_MAX_US), 0, SPAN_MAX_US)?;
    if let Some(id) = fields.id.as_ref().filter(|id| !(1..=ID_BYTES_MAX).contains(&id.len())) {
        return Err(EventError::IdLength(id.len()));
    }
    let id = fields.id.take();
    let act = match op {
        Op::Check => Act::Check(cost),
        Op::Peek => Act::Peek(cost),
        Op::Refund => Act::Refund(cost),
        Op::Reset => Act::Reset,
        Op::Reserve => Act::Reserve { cost, max_wait: Micros::new(max_wait) },
        Op::AtMost => Act::AtMost(cost),
        Op::Acquire => Act::Acquire { cost, id },
        Op::Release => Act::Release(id.ok_or_else(|| missing(Field::Id))?),
        Op::Renew => Act::Renew(id.ok_or_else(|| missing(Field::Id))?),
        Op::Configure => Act::Configure(fields.document.ok_or_else(|| missing(Field::Document))?),
    };
    Ok(Event { at, policy, key: fields.key.take(), act })
}

fn refuse_misplaced(fields: &Fields<'_>, op: Op) -> Result<(), EventError> {
    let holds = matches!(op, Op::Acquire | Op::Release | Op::Renew);
    let (reserves, configures) = (op == Op::Reserve, op == Op::Configure);
    for (given, goes, field) in [
        (fields.max_wait_us.is_some(), reserves, Field::MaxWaitUs),
        (fields.id.is_some(), holds, Field::Id),
        (fields.document.is_some(), configures, Field::Document),
    ] {
        if given && !goes {
            return Err(EventError::Misplaced { field, op });
        }
    }
    Ok(())
}

fn op_named(name: &str) -> Result<Op, EventError> {
    Op::named(name).ok_or_else(|| EventError::UnknownOp(one_line(name)))
}
