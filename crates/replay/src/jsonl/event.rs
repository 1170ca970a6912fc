//! The meaning of the fields of a line: an event, or an error.

use sluicegate::{Cost, Micros};
use sluicegate_kernel::limits::SPAN_MAX_US;
use sluicegate_kernel::param::within;
use sluicegate_text::fields::{Field, RequestFields};
use sluicegate_text::terminal::one_line;

use super::{Act, ReplayEvent};
use crate::error::EventError;
use crate::op::OpName;

/// Longest name of a permit, bytes: that of a key.
const ID_BYTES_MAX: usize = 1024;

/// Returns the event of `fields`.
pub(super) fn event<'a>(fields: &mut RequestFields<'a>) -> Result<ReplayEvent<'a>, EventError> {
    let op = fields.op.as_deref().map_or(Ok(OpName::default()), op_named)?;
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
        OpName::Check => Act::Check(cost),
        OpName::Peek => Act::Peek(cost),
        OpName::Refund => Act::Refund(cost),
        OpName::Reset => Act::Reset,
        OpName::Reserve => Act::Reserve { cost, max_wait: Micros::new(max_wait) },
        OpName::AtMost => Act::AtMost(cost),
        OpName::Acquire => Act::Acquire { cost, id },
        OpName::Release => Act::Release(id.ok_or_else(|| missing(Field::Id))?),
        OpName::Renew => Act::Renew(id.ok_or_else(|| missing(Field::Id))?),
        OpName::Configure => {
            Act::Configure(fields.document.ok_or_else(|| missing(Field::Document))?)
        }
    };
    Ok(ReplayEvent { at, policy, key: fields.key.take(), act })
}

fn refuse_misplaced(fields: &RequestFields<'_>, op: OpName) -> Result<(), EventError> {
    let holds = matches!(op, OpName::Acquire | OpName::Release | OpName::Renew);
    let (reserves, configures) = (op == OpName::Reserve, op == OpName::Configure);
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

fn op_named(name: &str) -> Result<OpName, EventError> {
    OpName::named(name).ok_or_else(|| EventError::UnknownOp(one_line(name)))
}
