//! From rules as data to the kernel's rules.

use std::collections::BTreeMap;

use sluicegate_kernel::algorithm::algorithms;
use sluicegate_kernel::param::{Kind, Param};
use sluicegate_kernel::{Micros, NamedRule, Params, Rate, Rule, RuleSet, Value};

use crate::vector::{Carry, ParamValue, RateSpec, RuleSpec};

/// Builds the set of `specs`, which takes usage over by `carry`; an error names the problem.
pub(crate) fn rule_set(specs: &[RuleSpec], carry: Option<Carry>) -> Result<RuleSet, String> {
    let named = specs.iter().map(named_rule).collect::<Result<_, _>>()?;
    let carry = match carry {
        None | Some(Carry::Usage) => sluicegate_kernel::Carry::Usage,
        Some(Carry::Proportional) => sluicegate_kernel::Carry::Proportional,
        Some(Carry::Reset) => sluicegate_kernel::Carry::Reset,
    };
    let set = RuleSet::new(named).map_err(|error| error.to_string())?;
    Ok(set.with_carry(carry))
}

fn named_rule(spec: &RuleSpec) -> Result<NamedRule, String> {
    let RuleSpec { name, algorithm, params } = spec;
    let known = algorithms().iter().find(|known| known.name == algorithm);
    let known = known.ok_or_else(|| format!("unknown algorithm `{algorithm}`"))?;
    let params =
        parse(params, known.params).map_err(|problem| format!("rule `{name}`: {problem}"))?;
    let rule = Rule::from_params(algorithm, &params)
        .expect("the algorithm was found in the registry")
        .map_err(|error| format!("rule `{name}`: {error}"))?;
    Ok(NamedRule { name: name.as_str().into(), rule })
}

fn parse(given: &BTreeMap<String, ParamValue>, table: &[Param]) -> Result<Params, String> {
    let mut params = Params::default();
    for (key, value) in given {
        let param = table.iter().find(|param| key_of(param) == *key);
        let param = param.ok_or_else(|| format!("unknown parameter `{key}`"))?;
        let value = match (param.kind, value) {
            (Kind::Rate, ParamValue::Rate(RateSpec { permits, period_us })) => {
                let rate = Rate::new(*permits, Micros::new(*period_us));
                Value::Rate(rate.map_err(|error| error.to_string())?)
            }
            (Kind::Span, ParamValue::Whole(us)) => Value::Span(Micros::new(*us)),
            (Kind::Permits { .. } | Kind::WordOrPermits { .. }, ParamValue::Whole(permits)) => {
                Value::Permits(*permits)
            }
            (Kind::Factor { .. }, ParamValue::Factor(factor)) => Value::Factor(*factor),
            (
                Kind::Word(_) | Kind::WordOrPermits { .. } | Kind::TimeZone,
                ParamValue::Word(word),
            ) => Value::Word(word.clone()),
            _ => return Err(format!("`{key}` has a value of the wrong kind")),
        };
        params.push(param.name, value);
    }
    Ok(params)
}

/// The name of a parameter in a vector: that of a span ends in its unit.
fn key_of(param: &Param) -> String {
    match param.kind {
        Kind::Span => format!("{}_us", param.name),
        _ => param.name.to_owned(),
    }
}
