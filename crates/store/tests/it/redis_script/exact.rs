//! The arithmetic that the twins rest on: integers in doubles, exact up to 2^53.

use fastrand::Rng;
use mlua::Function;
use sluicegate_lua::LuaRedis;
use sluicegate_store::redis::script;

use crate::redis_script::lua;
use crate::redis_script::random::number;

/// Cases of each property.
const CASES: u32 = 50_000;

fn lua_function(redis: &LuaRedis, name: &str) -> Function {
    let end = script::TEXT.find("local function make").expect("the prelude goes on so");
    let text = format!("{}\nreturn {name}", &script::TEXT[..end]);
    redis.lua().load(text).eval().unwrap()
}

#[test]
fn products_are_divided_exactly() {
    let (redis, mut rng) = (lua::redis(), Rng::with_seed(1));
    let mul_div = lua_function(&redis, "mul_div");
    let mut exact = 0;
    for _ in 0..CASES {
        let a = number(&mut rng, 0, 1 << 53);
        let b = number(&mut rng, 0, 1 << 52);
        let c = number(&mut rng, 1, 1 << 52);
        let (quotient, left): (f64, f64) = mul_div.call((a as f64, b as f64, c as f64)).unwrap();
        let product = u128::from(a) * u128::from(b);
        let expected = product / u128::from(c);
        if expected <= 1 << 53 {
            exact += 1;
            let rest = (product % u128::from(c)) as f64;
            assert_eq!((quotient, left), (expected as f64, rest), "{a} * {b} / {c}");
        } else {
            assert!(quotient >= 2_f64.powi(53), "{a} * {b} / {c}");
        }
    }
    assert!(exact > CASES / 4, "only {exact} cases below 2^53");
}

#[test]
fn quotients_round_exactly() {
    let (redis, mut rng) = (lua::redis(), Rng::with_seed(2));
    let code = "function(a, b) local x = a / b return (a - a % b) / b, x + -x % 1, a % b end";
    let divide = lua_function(&redis, code);
    for _ in 0..CASES {
        let b = number(&mut rng, 1, 1 << 53);
        // Just below and above a multiple, where rounding would show.
        let near = b.saturating_mul(number(&mut rng, 0, (1 << 53) / b));
        let a = match rng.u32(0..4) {
            0 => number(&mut rng, 0, 1 << 53),
            1 => near.saturating_sub(1),
            2 => near + 1,
            _ => near,
        };
        let a = a.min(1 << 53);
        let got: (f64, f64, f64) = divide.call((a as f64, b as f64)).unwrap();
        let expected = ((a / b) as f64, a.div_ceil(b) as f64, (a % b) as f64);
        assert_eq!(got, expected, "{a} / {b}");
    }
}
