//! `struct.pack` and `struct.unpack`, the library that Redis has for scripts: the formats that ours use.

use mlua::{Lua, LuaString, Value, Variadic};

use crate::argument;

/// One item of a format: its letter and its size in bytes.
fn items(format: &str) -> Vec<(char, usize)> {
    let rest = format.strip_prefix('<').expect("formats here are little-endian");
    let mut letters = rest.chars().peekable();
    let mut items = Vec::new();
    while let Some(letter) = letters.next() {
        let mut digits = String::new();
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        let size = match (letter, digits.parse()) {
            ('B', _) => 1,
            ('d', _) => 8,
            ('I' | 'i' | 'c', Ok(size)) => size,
            _ => panic!("unknown item `{letter}{digits}` in `{format}`"),
        };
        items.push((letter, size));
    }
    items
}

/// `struct.pack` for the formats of the script, and whole numbers from -1 to 2^53, of signed items from -2^53; it panics
/// on others.
#[expect(clippy::needless_pass_by_value, reason = "what a function of Lua takes")]
pub(crate) fn pack_in_range(lua: &Lua, args: Variadic<Value>) -> mlua::Result<LuaString> {
    pack(lua, &args, |letter, number| {
        let most = 2_f64.powi(53);
        let least = if letter == 'i' { -most } else { -1.0 };
        assert!(number.fract() == 0.0, "`{number}` as an integer");
        assert!((least..=most).contains(&number), "`{number}` is packed");
    })
}

/// Like [`pack_in_range`], for any number.
#[expect(clippy::needless_pass_by_value, reason = "what a function of Lua takes")]
pub(crate) fn pack_any(lua: &Lua, args: Variadic<Value>) -> mlua::Result<LuaString> {
    pack(lua, &args, |_, _| ())
}

fn pack(lua: &Lua, args: &[Value], check: impl Fn(char, f64)) -> mlua::Result<LuaString> {
    let format = String::from_utf8(argument(&args[0])).expect("formats are text");
    let mut bytes = Vec::new();
    for ((letter, size), value) in items(&format).into_iter().zip(&args[1..]) {
        match (letter, value) {
            ('c', Value::String(text)) if size == 0 => bytes.extend_from_slice(&text.as_bytes()),
            ('c', Value::String(text)) => bytes.extend_from_slice(&text.as_bytes()[..size]),
            ('d', value) => bytes.extend_from_slice(&double(value).to_le_bytes()),
            (letter, value) => {
                let number = double(value);
                check(letter, number);
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "as the library of Redis does"
                )]
                bytes.extend_from_slice(&(number as i64).to_le_bytes()[..size]);
            }
        }
    }
    lua.create_string(bytes)
}

fn double(value: &Value) -> f64 {
    match value {
        Value::Integer(number) => *number as f64,
        Value::Number(number) => *number,
        other => panic!("{other:?} is packed as a number"),
    }
}

/// `struct.unpack` for the formats of the script; the last value is the position after the items.
pub(crate) fn unpack(
    lua: &Lua,
    (format, text, start): (String, LuaString, Option<usize>),
) -> mlua::Result<Variadic<Value>> {
    let (text, mut pos) = (text.as_bytes(), start.unwrap_or(1) - 1);
    let mut values = Variadic::new();
    for (letter, size) in items(&format) {
        let Some(bytes) = text.get(pos..pos + size) else {
            return Err(mlua::Error::runtime("data string too short"));
        };
        values.push(match letter {
            'c' => Value::String(lua.create_string(bytes)?),
            'd' => {
                Value::Number(f64::from_le_bytes(bytes.try_into().expect("a double has 8 bytes")))
            }
            _ => {
                let number = bytes.iter().rev().fold(0_u64, |n, byte| n << 8 | u64::from(*byte));
                Value::Number(number as f64)
            }
        });
        pos += size;
    }
    values.push(Value::Number((pos + 1) as f64));
    Ok(values)
}
