//! `SG.*`: decisions by the policies in force, or by rules that the caller sends along.

use sluicegate::{Cost, Micros, Patience, PermitId, Request, Verb};
use sluicegate_kernel::limits::{COST_MAX, KEY_BYTES_MAX, SPAN_MAX_US};
use sluicegate_kernel::param::within;

use super::caller_rules::CallerLimits;
use super::decision_request::{DecisionRequest, SentLimits};
use super::error_reply::{ErrorReply, shown};
use super::table;

/// The operation; its name is that of the command without `SG.`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyCommand {
    Check,
    Peek,
    Refund,
    Reset,
    Acquire,
    Renew,
    Release,
}

/// The options behind the positions, each once, in any order.
#[derive(Debug, Default)]
struct CommandOptions<'a> {
    cost: Option<&'a [u8]>,
    app: Option<&'a [u8]>,
    max_wait: Option<&'a [u8]>,
    rules: Option<&'a [u8]>,
}

impl PolicyCommand {
    /// Reads the words behind the command's name.
    #[inline]
    pub(super) fn decode<'a>(self, words: &[&'a [u8]]) -> Result<DecisionRequest<'a>, ErrorReply> {
        let (policy, key, id, options) = match (self.has_id(), words) {
            (false, [policy, key, options @ ..]) => (policy, key, None, options),
            (true, [policy, key, id, options @ ..]) => (policy, key, Some(*id), options),
            _ => return Err(ErrorReply::bad_request(format_args!("usage: {}", self.usage()))),
        };
        let options = match options {
            [] => CommandOptions::default(),
            words => self.options(words)?,
        };
        let (policy, sent) = match options.rules {
            None => (text("policy", policy)?, SentLimits::None),
            Some(rules) => {
                let limits = CallerLimits::new(policy, rules)?;
                (text("name", policy)?, SentLimits::Rules(Box::new(limits)))
            }
        };
        let app = options.app.map(app).transpose()?;
        let verb = self.verb(id, &options)?;
        let patience = match (self, options.max_wait) {
            (Self::Acquire, Some(word)) => Patience::Permit(max_wait(word)?),
            _ => Patience::Policy,
        };
        let key = Some(*key).filter(|key| !key.is_empty());
        let request = Request::new(policy, key, verb).with_patience(patience);
        Ok(DecisionRequest { request: Request { app, ..request }, sent })
    }

    #[inline]
    fn verb(self, id: Option<&[u8]>, options: &CommandOptions<'_>) -> Result<Verb, ErrorReply> {
        let cost = options.cost.map_or(Ok(Cost::ONE), cost)?;
        let permit = id.map_or(Ok(PermitId(0)), permit)?;
        Ok(match self {
            Self::Check => match options.max_wait {
                Some(word) => Verb::Reserve { cost, max_wait: max_wait(word)? },
                None => Verb::Check { cost },
            },
            Self::Peek => Verb::Peek { cost },
            Self::Refund => Verb::Refund { cost },
            Self::Reset => Verb::Reset,
            Self::Acquire => Verb::Acquire { cost, permit },
            Self::Renew => Verb::Renew { permit },
            Self::Release => Verb::Release { permit },
        })
    }

    fn options<'a>(self, words: &[&'a [u8]]) -> Result<CommandOptions<'a>, ErrorReply> {
        let mut options = CommandOptions::default();
        for pair in words.chunks(2) {
            let name = pair[0];
            let place = if name.eq_ignore_ascii_case(b"APP") {
                &mut options.app
            } else if name.eq_ignore_ascii_case(b"RULES") {
                &mut options.rules
            } else if self.has_cost() && name.eq_ignore_ascii_case(b"COST") {
                &mut options.cost
            } else if self.has_wait() && name.eq_ignore_ascii_case(b"MAXWAIT") {
                &mut options.max_wait
            } else {
                let (name, usage) = (shown(name), self.usage());
                return Err(ErrorReply::bad_request(format_args!(
                    "unknown option `{name}`, usage: {usage}"
                )));
            };
            let Some(value) = pair.get(1) else {
                return Err(ErrorReply::bad_request(format_args!(
                    "{}: missing value",
                    shown(name)
                )));
            };
            if place.replace(value).is_some() {
                return Err(ErrorReply::bad_request(format_args!(
                    "{}: is given twice",
                    shown(name)
                )));
            }
        }
        Ok(options)
    }

    const fn has_id(self) -> bool {
        matches!(self, Self::Acquire | Self::Renew | Self::Release)
    }

    const fn has_wait(self) -> bool {
        matches!(self, Self::Check | Self::Acquire)
    }

    const fn has_cost(self) -> bool {
        matches!(self, Self::Check | Self::Peek | Self::Refund | Self::Acquire)
    }

    /// The name and the words behind it, such as `SG.RESET policy key [APP app] [RULES json]`.
    fn usage(self) -> String {
        let name = match self {
            Self::Check => "sg.check",
            Self::Peek => "sg.peek",
            Self::Refund => "sg.refund",
            Self::Reset => "sg.reset",
            Self::Acquire => "sg.acquire",
            Self::Renew => "sg.renew",
            Self::Release => "sg.release",
        };
        format!("{} {}", name.to_ascii_uppercase(), table::arguments_of(name))
    }
}

fn cost(word: &[u8]) -> Result<Cost, ErrorReply> {
    Ok(Cost::new(whole("cost", word, 1, COST_MAX)?)?)
}

fn max_wait(word: &[u8]) -> Result<Micros, ErrorReply> {
    Ok(Micros::from_millis(whole("maxwait", word, 0, SPAN_MAX_US / 1_000)?))
}

fn app(word: &[u8]) -> Result<&str, ErrorReply> {
    if word.is_empty() {
        return Err(ErrorReply::bad_request(format_args!(
            "app: is empty, expected the name of an app"
        )));
    }
    text("app", word)
}

fn permit(word: &[u8]) -> Result<PermitId, ErrorReply> {
    if !(1..=KEY_BYTES_MAX).contains(&word.len()) {
        let bytes = word.len();
        return Err(ErrorReply::bad_request(format_args!(
            "id: `{bytes}` bytes are outside 1..={KEY_BYTES_MAX}"
        )));
    }
    Ok(PermitId::named(text("id", word)?))
}

/// Reads `word`, the value of `field`, as a whole number: `5`, or `5.0`, as languages write a number with a point.
fn whole(field: &str, word: &[u8], min: u64, max: u64) -> Result<u64, ErrorReply> {
    let point = word.iter().position(|byte| *byte == b'.');
    let zeros = point.filter(|&point| {
        point + 1 < word.len() && word[point + 1..].iter().all(|byte| *byte == b'0')
    });
    let digits = &word[..zeros.unwrap_or(word.len())];
    let digits = Some(digits).filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let number = digits.and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    let Some(number) = number else {
        let given = shown(word);
        let problem = format_args!("{field}: `{given}` is not a whole number {min}..={max}");
        return Err(ErrorReply::bad_request(problem));
    };
    Ok(within(field, number, min, max)?)
}

#[inline]
fn text<'a>(field: &str, word: &'a [u8]) -> Result<&'a str, ErrorReply> {
    std::str::from_utf8(word).map_err(|error| {
        ErrorReply::bad_request(format_args!("{field}: byte {} is not UTF-8", error.valid_up_to()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode<'a>(operation: PolicyCommand, line: &'a str) -> Result<Request<'a>, ErrorReply> {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        operation.decode(&words).map(|question| question.request)
    }

    fn problem(operation: PolicyCommand, line: &str) -> String {
        decode(operation, line).unwrap_err().line().to_owned()
    }

    #[test]
    fn options_come_in_any_order_and_case() {
        let request = decode(PolicyCommand::Check, "p k maxwait 250.00 APP shop Cost 3.0").unwrap();
        assert_eq!(
            (request.limits.name(), request.key, request.app),
            ("p", Some(&b"k"[..]), Some("shop"))
        );
        let (cost, max_wait) = (Cost::new(3).unwrap(), Micros::from_millis(250));
        assert_eq!(request.verb, Verb::Reserve { cost, max_wait });
    }

    #[test]
    fn each_command_is_a_verb() {
        let permit = PermitId::named("i");
        for (operation, line, verb) in [
            (PolicyCommand::Check, "p k", Verb::Check { cost: Cost::ONE }),
            (PolicyCommand::Peek, "p k", Verb::Peek { cost: Cost::ONE }),
            (PolicyCommand::Refund, "p k", Verb::Refund { cost: Cost::ONE }),
            (PolicyCommand::Reset, "p k", Verb::Reset),
            (PolicyCommand::Acquire, "p k i", Verb::Acquire { cost: Cost::ONE, permit }),
            (PolicyCommand::Renew, "p k i", Verb::Renew { permit }),
            (PolicyCommand::Release, "p k i", Verb::Release { permit }),
        ] {
            assert_eq!(decode(operation, line).unwrap().verb, verb);
        }
    }

    #[test]
    fn an_empty_key_is_the_budget_that_all_share() {
        assert_eq!(decode(PolicyCommand::Check, "p ").unwrap().key, None);
    }

    #[test]
    fn a_key_is_any_bytes() {
        let key = b"\0\r\n\xff{}";
        let question = PolicyCommand::Check.decode(&[b"p", key]).unwrap();
        assert_eq!(question.request.key, Some(&key[..]));
    }

    #[test]
    fn what_is_wrong_is_named_with_what_is_permitted() {
        use PolicyCommand::*;
        let range = "1..=2147483648";
        for (operation, line, expected) in [
            (Check, "p k COST 0", format!("cost: `0` is outside {range}")),
            (Check, "p k COST 2147483649", format!("cost: `2147483649` is outside {range}")),
            (Check, "p k COST -1", format!("cost: `-1` is not a whole number {range}")),
            (Check, "p k COST +1", format!("cost: `+1` is not a whole number {range}")),
            (Check, "p k COST 5.5", format!("cost: `5.5` is not a whole number {range}")),
            (Check, "p k COST 5.", format!("cost: `5.` is not a whole number {range}")),
            (Check, "p k COST .0", format!("cost: `.0` is not a whole number {range}")),
            (Check, "p k COST 0.0", format!("cost: `0` is outside {range}")),
            (Check, "p k APP ", "app: is empty, expected the name of an app".to_owned()),
            (Check, "p k COST 1e3", format!("cost: `1e3` is not a whole number {range}")),
            (Check, "p k COST ", format!("cost: `` is not a whole number {range}")),
            (
                Check,
                "p k MAXWAIT x",
                "maxwait: `x` is not a whole number 0..=9007199254740".to_owned(),
            ),
            (Check, "p k COST", "COST: missing value".to_owned()),
            (Check, "p k APP a APP b", "APP: is given twice".to_owned()),
            (
                Check,
                "p",
                "usage: SG.CHECK policy key [COST n] [APP app] [MAXWAIT ms] [RULES json]"
                    .to_owned(),
            ),
            (
                Reset,
                "p k COST 1",
                "unknown option `COST`, usage: SG.RESET policy key [APP app] [RULES json]"
                    .to_owned(),
            ),
            (Release, "p k", "usage: SG.RELEASE policy key id [APP app] [RULES json]".to_owned()),
            (Release, "p k ", "id: `0` bytes are outside 1..=1024".to_owned()),
        ] {
            assert_eq!(problem(operation, line), format!("NOTCHARGED {expected}"), "{line}");
        }
        let refusal = Check.decode(&[b"p\xff", b"k"]).unwrap_err();
        assert_eq!(refusal.line(), "NOTCHARGED policy: byte 1 is not UTF-8");
    }
}
