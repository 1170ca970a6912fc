//! Rules, built from the tables of parameters that the kernel keeps beside each algorithm.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

use sluicegate_kernel::algorithm::{AlgorithmInfo, algorithms};
use sluicegate_kernel::limits::{LOG_ENTRIES_MAX, PERMITS_MAX, RULES_MAX};
use sluicegate_kernel::param::{Kind, Param};
use sluicegate_kernel::written::{parse_span, parse_whole};
use sluicegate_kernel::{Carry, NamedRule, Params, RangeError, Rule, RuleSet, Value};

use super::fields::{Fields, Word, list, missing, name, text, word};
use crate::calendar::zone;
use crate::error::At;
use crate::finding;
use crate::nearest;
use crate::node::DocumentNode;
use crate::policy::Rules;
use crate::quoted::{excerpt, listed, quoted};
use crate::text::{factor, rate, span, whole};

/// A list of rules, ready to be decided.
pub(super) fn rules(node: &DocumentNode, at: &At<'_>, carry: Carry) -> Option<Rules> {
    let items = list(node, at, "rules", 1, RULES_MAX)?;
    let mut rules: Vec<NamedRule> = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        let at = at.index(place);
        let Some(named) = rule(item, &at, items.len() == 1) else { continue };
        if rules.iter().any(|earlier| earlier.name == named.name) {
            let name = quoted(&named.name);
            at.field("name").report::<()>(finding!(
                "rule_name_taken",
                "two rules are named {name}",
                name
            ));
        }
        rules.push(named);
    }
    if rules.len() < items.len() {
        return None;
    }
    // All errors of these two have been reported above, with their paths.
    let set = RuleSet::new(rules).ok()?.with_carry(carry);
    Rules::new(set).ok()
}

/// Fields of policies that people look for in rules.
const OF_POLICY: [&str; 4] = ["key", "match", "overflow", "apps"];

/// One rule: a name and an algorithm. A rule that is `alone` may leave its name out.
fn rule(node: &DocumentNode, at: &At<'_>, alone: bool) -> Option<NamedRule> {
    let DocumentNode::Map(entries) = node else {
        return at.expected("a map with `name` and an algorithm", node);
    };
    let known = |name: &str| algorithms().iter().find(|algorithm| algorithm.name == name);
    let mut given = entries.iter().filter_map(|(name, node)| Some((known(name)?, node)));
    let Some((&AlgorithmInfo { name: algorithm, params: table, .. }, parameters)) = given.next()
    else {
        return no_algorithm(entries, at);
    };
    let other = given.next().map(|(other, _)| other.name);
    if let Some(other) = other.filter(|other| *other != algorithm) {
        return at.report(finding!(
            "two_algorithms",
            "`{algorithm}` and `{other}`: a rule has one algorithm",
            algorithm,
            other
        ));
    }
    let names = || entries.iter().map(|(name, _)| name.as_str());
    let is_parameter = |name: &&str| table.iter().any(|param| param.name == *name);
    let beside: Vec<_> = names().filter(is_parameter).collect();
    if !beside.is_empty() {
        return beside_algorithm(algorithm, &beside, at);
    }
    let misplaced: Vec<_> = names().filter(|name| OF_POLICY.contains(name)).collect();
    for name in &misplaced {
        at.field(name).report::<()>(finding!(
            "field_of_policy",
            "`{name}` is a field of the policy: all its rules share it",
            name
        ));
    }
    let fields = Fields::read(node, at, &[&["name", algorithm], misplaced.as_slice()].concat())?;
    let rule = algorithm_rule(algorithm, table, parameters, &at.field(algorithm));
    let at = at.field("name");
    let given_name = match fields.get("name") {
        Some(node) => name(node, &at),
        None if alone => Some(algorithm),
        None => at.report(finding!(
            "rule_without_name",
            "is missing: with several rules, each needs a name"
        )),
    };
    Some(NamedRule { name: given_name?.into(), rule: rule? })
}

/// Reports the parameters that stand beside the algorithm instead of in it, as without their indentation.
fn beside_algorithm(algorithm: &str, beside: &[&str], at: &At<'_>) -> Option<NamedRule> {
    for name in beside {
        at.field(name).report::<()>(finding!(
            "parameter_beside",
            "`{name}` is a parameter of `{algorithm}`: indent it below `{algorithm}:`, or write `{algorithm}: {{ {name}: … }}`",
            name,
            algorithm
        ));
    }
    None
}

/// The algorithm that a parameter without one most likely belongs to.
fn algorithm_with(parameter: &str) -> Option<&'static str> {
    let mut all = algorithms().iter();
    let has = |table: &[Param]| table.iter().any(|param| param.name == parameter);
    all.find(|algorithm| has(algorithm.params)).map(|algorithm| algorithm.name)
}

fn no_algorithm(entries: &[(String, DocumentNode)], at: &At<'_>) -> Option<NamedRule> {
    let names = || algorithms().iter().map(|algorithm| algorithm.name);
    let known = listed(names(), "or");
    let others = || entries.iter().filter(|(name, _)| name != "name");
    let misspelt = others().find(|(name, _)| nearest(name, names()).is_some());
    let Some((other, value)) = misspelt.or_else(|| others().next()) else {
        return at.report(finding!(
            "missing_algorithm",
            "missing algorithm, expected {known}",
            known
        ));
    };
    let given = quoted(other);
    at.report(match (nearest(other, names()), value) {
        (Some(near), _) => finding!(
            "unknown_algorithm_near",
            "unknown algorithm {given}, did you mean `{near}`?",
            given,
            near
        ),
        // Other limiters have this notation.
        (None, DocumentNode::Text(name)) if names().any(|known| known == name) => finding!(
            "algorithm_as_value",
            "{given} is not a field of a rule: write `{name}: {{ … }}` with the parameters in it",
            given,
            name
        ),
        (None, DocumentNode::Text(value) | DocumentNode::Number(value))
            if let Some(algorithm) = algorithm_with(other) =>
        {
            finding!(
                "parameter_without_algorithm",
                "{given} is a parameter: write it in its algorithm, such as `{algorithm}: {{ {parameter} }}`",
                given,
                algorithm,
                parameter = alloc::format!("{other}: {}", excerpt(value))
            )
        }
        (None, _) => finding!(
            "unknown_algorithm",
            "unknown algorithm {given}, expected {known}",
            given,
            known
        ),
    })
}

fn algorithm_rule(
    algorithm: &str,
    table: &[Param],
    node: &DocumentNode,
    at: &At<'_>,
) -> Option<Rule> {
    let known: Vec<_> = table.iter().map(|param| param.name).collect();
    let fields = Fields::read(node, at, &known)?;
    let mut params = Params::default();
    let mut complete = true;
    for param in table {
        let at = at.field(param.name);
        match (fields.get(param.name), param.default) {
            (Some(node), _) if is_long_log(algorithm, param, node) => {
                let max = LOG_ENTRIES_MAX;
                at.report::<()>(finding!(
                    "long_log",
                    "a log holds at most {max} requests: use `sliding_window` for higher limits",
                    max
                ));
                complete = false;
            }
            (Some(DocumentNode::Number(text)), _)
                if text == "0" && (algorithm, param.name) == ("token_bucket", "burst") =>
            {
                at.report::<()>(finding!(
                    "zero_burst",
                    "`0` is not a whole number from 1 to {max}: `burst` is the size of the bucket; without it, the \
                     bucket has the permits of `rate`",
                    max = PERMITS_MAX
                ));
                complete = false;
            }
            (Some(node), _) => match value(&param.kind, node, &at) {
                Some(value) => params.push(param.name, value),
                None => complete = false,
            },
            (None, None) => {
                let wanted = wanted(&param.kind);
                at.report::<()>(missing(&wanted));
                complete = false;
            }
            (None, Some(_)) => {
                if (algorithm, param.name) == ("token_bucket", "burst")
                    && let Some(problem) = fields.get("rate").and_then(burst_of_fraction)
                {
                    at.report::<()>(problem);
                    complete = false;
                }
            }
        }
    }
    if !complete {
        return None;
    }
    match Rule::from_params(algorithm, &params)? {
        Ok(rule) => Some(rule),
        Err(error) => out_of_range(&error, at),
    }
}

/// Returns the problem of a bucket without `burst` if `rate` has a fraction: its permits are those of a period that is not
/// written there. `2.53/s` is `253/100s`, and nobody means a burst of 253.
fn burst_of_fraction(rate_node: &DocumentNode) -> Option<crate::Finding> {
    let DocumentNode::Text(text) = rate_node else { return None };
    let (_, period) = text.split_once('/')?;
    let (exact, written) = (rate(text).ok()?, rate(&alloc::format!("1/{period}")).ok()?);
    let (us, written_us) = (exact.period().get(), written.period().get());
    (us != written_us).then(|| {
        let permits = u128::from(exact.permits()) * u128::from(written_us);
        finding!(
            "burst_of_fraction",
            "is missing: {given} is `{exact}`, so write how many permits a full bucket has, such as `burst: {burst}`",
            given = quoted(text),
            exact,
            burst = permits.div_ceil(us.into())
        )
    })
}

/// Reports an error of the kernel, whose fields may contain a unit: `window in µs`.
fn out_of_range(error: &RangeError, at: &At<'_>) -> Option<Rule> {
    match error.field().split_once(' ') {
        Some((field, unit)) => at.field(field).report(finding!(
            "out_of_range_in",
            "{problem} ({unit})",
            problem = error.problem(),
            unit
        )),
        None => at.field(error.field()).report(finding!(
            "out_of_range",
            "{problem}",
            problem = error.problem()
        )),
    }
}

/// Returns whether `node` is a limit that only another algorithm can have.
fn is_long_log(algorithm: &str, param: &Param, node: &DocumentNode) -> bool {
    let DocumentNode::Number(text) = node else { return false };
    let number = parse_whole(text).filter(|number| *number <= PERMITS_MAX);
    algorithm == "sliding_log"
        && param.name == "limit"
        && number.is_some_and(|number| number > LOG_ENTRIES_MAX)
}

fn value(kind: &Kind, node: &DocumentNode, at: &At<'_>) -> Option<Value> {
    Some(match (*kind, node) {
        (Kind::Rate, DocumentNode::Text(text) | DocumentNode::Number(text)) => {
            Value::Rate(at.ok(rate(text))?)
        }
        (Kind::Span, DocumentNode::Text(text) | DocumentNode::Number(text)) => {
            Value::Span(at.ok(span(text))?)
        }
        (Kind::Permits { min, max }, DocumentNode::Number(text)) => {
            Value::Permits(at.ok(whole(text, min, max))?)
        }
        (Kind::WordOrPermits { max, .. }, DocumentNode::Number(text)) => {
            Value::Permits(at.ok(whole(text, 0, max))?)
        }
        (Kind::WordOrPermits { words, .. }, DocumentNode::Text(text))
            if words.contains(&text.as_str()) =>
        {
            Value::Word(text.clone())
        }
        (Kind::Word(words), DocumentNode::Text(text))
            if words.contains(&"month")
                && !words.contains(&text.as_str())
                && parse_span(&alloc::format!("1{text}")).is_some() =>
        {
            let (words, unit) = (listed(words.iter().copied(), "or"), text);
            return at.report(finding!(
                "no_calendar_unit",
                "expected {words}: use `window: 1{unit}` for other windows",
                words,
                unit
            ));
        }
        (Kind::Word(words), _) => {
            let words: Vec<_> = words.iter().map(|word| Word::new(word, *word)).collect();
            Value::Word(word(node, at, &words)?.to_owned())
        }
        (Kind::Factor { min, max }, DocumentNode::Number(text)) => {
            Value::Factor(at.ok(factor(text, min, max))?)
        }
        (Kind::TimeZone, _) => {
            let name = text(node, at, "a time zone")?;
            at.ok(zone(name))?;
            Value::Word(name.to_owned())
        }
        _ => return at.expected(&wanted(kind), node),
    })
}

/// The permitted values of a parameter of this kind, in the words of a message.
fn wanted(kind: &Kind) -> String {
    match *kind {
        Kind::Rate => "a rate such as `100/s`".to_owned(),
        Kind::Span => "a duration such as `250ms`".to_owned(),
        Kind::Permits { min, max } => alloc::format!("a whole number from {min} to {max}"),
        Kind::Word(words) => listed(words.iter().copied(), "or"),
        Kind::WordOrPermits { words, max } => {
            let words = listed(words.iter().copied(), "or");
            alloc::format!("{words}, or a whole number from 0 to {max}")
        }
        Kind::Factor { min, max } => alloc::format!("a number above {min}, at most {max}"),
        Kind::TimeZone => "a time zone such as `Europe/Berlin`".to_owned(),
    }
}
