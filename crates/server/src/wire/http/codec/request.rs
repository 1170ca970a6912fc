//! The body of a request about one budget.

use std::borrow::Cow;

use sluicegate::internals::Settlement;
use sluicegate::{Cost, Micros, Patience, PermitId, Request, Verb};
use sluicegate_kernel::Rate;
use sluicegate_kernel::limits::KEY_BYTES_MAX;
use sluicegate_kernel::param::within;
use sluicegate_text::fields::{Field, FieldError, FieldKind, RequestFields};

use super::operation::Operation;
use super::problem::Problem;

/// A request about one budget.
#[derive(Debug)]
pub(crate) struct OperationRequest<'a> {
    policy: Cow<'a, str>,
    key: Option<Cow<'a, str>>,
    app: Option<Cow<'a, str>>,
    verb: Verb,
    patience: Patience,
    /// The steady load of an explanation.
    pub(crate) at: Option<Rate>,
    /// The id of the permit.
    pub(crate) id: Option<Cow<'a, str>>,
    /// The server generated the id.
    pub(crate) is_named_here: bool,
}

/// A check whose charge is corrected to its actual cost.
#[derive(Debug)]
pub(crate) struct Settle<'a> {
    policy: Cow<'a, str>,
    key: Option<Cow<'a, str>>,
    app: Option<Cow<'a, str>>,
    id: Cow<'a, str>,
    charged: Cost,
    cost: u64,
}

impl<'a> OperationRequest<'a> {
    /// Reads the body of `operation`. A permit without an id gets that of `new_id`.
    pub(crate) fn decode(
        operation: Operation,
        bytes: &'a [u8],
        new_id: impl FnOnce() -> String,
    ) -> Result<Self, Problem> {
        Self::read(operation, text(bytes)?, new_id)
    }

    /// See [`decode`](Self::decode).
    pub(super) fn read(
        operation: Operation,
        text: &'a str,
        new_id: impl FnOnce() -> String,
    ) -> Result<Self, Problem> {
        let mut fields = fields(operation, text)?;
        let is_named_here = operation == Operation::Acquire && fields.id.is_none();
        if is_named_here {
            fields.id = Some(Cow::Owned(new_id()));
        }
        let verb = verb(operation, &fields)?;
        let at = fields.at.as_deref().map(rate_of).transpose()?;
        let RequestFields { policy, key, app, id, max_wait_ms, .. } = fields;
        let policy = policy.ok_or(FieldError::Missing(Field::Policy))?;
        let patience = match (&verb, max_wait_ms) {
            (Verb::Acquire { .. }, Some(ms)) => {
                Patience::Permit(Micros::from_millis(in_range(Field::MaxWaitMs, ms)?))
            }
            _ => Patience::Policy,
        };
        Ok(Self { policy, key, app, verb, patience, at, id, is_named_here })
    }

    /// The request as the engine takes it.
    pub(crate) fn request(&self) -> Request<'_> {
        let Self { policy, key, app, verb, patience, is_named_here, .. } = self;
        let key = key.as_ref().map(|key| key.as_bytes());
        let (app, patience, is_permit_unnamed) = (app.as_deref(), *patience, *is_named_here);
        let request = Request::new(policy, key, verb.clone());
        Request { app, patience, is_permit_unnamed, ..request }
    }
}

impl<'a> Settle<'a> {
    /// Reads the body.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Problem> {
        let fields = fields(Operation::Settle, text(bytes)?)?;
        let missing = FieldError::Missing;
        let charged = fields.charged.ok_or(missing(Field::Charged))?;
        let cost = fields.actual_cost.ok_or(missing(Field::ActualCost))?;
        let charged = cost_of(in_range(Field::Charged, charged)?)?;
        let cost = in_range(Field::ActualCost, cost)?;
        let RequestFields { policy, key, app, id, .. } = fields;
        let policy = policy.ok_or(missing(Field::Policy))?;
        let id = id.ok_or(missing(Field::Id))?;
        Ok(Self { policy, key, app, id, charged, cost })
    }

    /// The settlement as the engine takes it.
    pub(crate) fn settlement(&self) -> Settlement<'_> {
        let Self { policy, key, app, id, charged, cost } = self;
        let key = key.as_ref().map(|key| key.as_bytes());
        let (app, id, charged, cost) = (app.as_deref(), id.as_bytes(), *charged, *cost);
        Settlement { policy, key, app, id, charged, cost }
    }
}

/// The text of a body.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|error| {
        Problem::bad_request(format!("byte {} of the body is not UTF-8", error.valid_up_to()))
    })
}

/// Reads the fields of `operation` in `text`, and checks the length of the id.
pub(super) fn fields(operation: Operation, text: &str) -> Result<RequestFields<'_>, Problem> {
    let mut fields = RequestFields::new(operation.form());
    fields.read(text)?;
    if let Some(bytes) = fields.id.as_ref().map(|id| id.len())
        && !(1..=KEY_BYTES_MAX).contains(&bytes)
    {
        let detail = format!("id: `{bytes}` bytes are outside 1..={KEY_BYTES_MAX}");
        return Err(Problem::bad_request(detail));
    }
    Ok(fields)
}

fn verb(operation: Operation, fields: &RequestFields<'_>) -> Result<Verb, Problem> {
    let cost = match fields.cost {
        Some(cost) => cost_of(cost)?,
        None => Cost::ONE,
    };
    let permit = || match &fields.id {
        Some(id) => Ok(PermitId::named(id)),
        None => Err(FieldError::Missing(Field::Id)),
    };
    Ok(match operation {
        Operation::Check => match fields.max_wait_ms {
            Some(ms) => {
                let max_wait = Micros::from_millis(in_range(Field::MaxWaitMs, ms)?);
                Verb::Reserve { cost, max_wait }
            }
            None => Verb::Check { cost },
        },
        Operation::AtMost => Verb::AtMost { cost },
        Operation::Refund => Verb::Refund { cost },
        Operation::Reset => Verb::Reset,
        Operation::Acquire => Verb::Acquire { cost, permit: permit()? },
        Operation::Renew => Verb::Renew { permit: permit()? },
        Operation::Release => Verb::Release { permit: permit()? },
        Operation::Peek | Operation::Explain => Verb::Peek { cost },
        Operation::Batch | Operation::Settle => {
            unreachable!("these are no questions about one budget")
        }
    })
}

fn cost_of(permits: u64) -> Result<Cost, Problem> {
    Cost::new(permits).map_err(|error| Problem::bad_request(error.to_string()))
}

fn rate_of(text: &str) -> Result<Rate, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format!("{}: {error}", Field::At.name())))
}

/// `number`, if it is in the range of `field`.
fn in_range(field: Field, number: u64) -> Result<u64, Problem> {
    match field.kind() {
        FieldKind::Whole { min, max } => within(field.name(), number, min, max)
            .map_err(|error| Problem::bad_request(error.to_string())),
        _ => Ok(number),
    }
}
