//! The script in this process: Lua 5.1 as Redis embeds it, with as much of Redis as it calls.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua, LuaString, Value, Variadic};
use sluicegate_store::redis::script;

use crate::redis_script::subject::Executor;

/// A server that knows `GET`, `SET key value PX ttl`, `DEL` and `TIME`.
pub(crate) struct FakeRedis {
    lua: Lua,
    script: Function,
    pub(crate) server: Rc<RefCell<Server>>,
}

/// What the server remembers.
#[derive(Debug, Default)]
pub(crate) struct Server {
    /// What `TIME` says, in µs; keys end by it.
    pub(crate) now_us: u64,
    /// Value and end of each key.
    pub(crate) keys: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Commands that change keys.
    pub(crate) writes: u64,
}

impl FakeRedis {
    pub(crate) fn new() -> Self {
        let (lua, server) = (Lua::new(), Rc::new(RefCell::new(Server::default())));
        let script = lua.load(script::TEXT).set_name("script").into_function().unwrap();
        let redis = lua.create_table().unwrap();
        let shared = Rc::clone(&server);
        let call = lua.create_function(move |lua, args: Variadic<Value>| {
            let args: Vec<_> = args.iter().map(argument).collect();
            shared.borrow_mut().call(lua, &args)
        });
        let call = call.unwrap();
        // No command fails here, so that a call is as good as one whose errors are values.
        redis.set("pcall", &call).unwrap();
        redis.set("call", call).unwrap();
        lua.globals().set("redis", redis).unwrap();
        let packer = lua.create_table().unwrap();
        packer.set("pack", lua.create_function(pack_in_range).unwrap()).unwrap();
        packer.set("unpack", lua.create_function(unpack).unwrap()).unwrap();
        lua.globals().set("struct", packer).unwrap();
        forbid_globals(&lua);
        Self { lua, script, server }
    }

    /// The same, which packs numbers that are none of the script's as Redis does.
    pub(crate) fn lenient() -> Self {
        let redis = Self::new();
        let packer: mlua::Table = redis.lua.globals().get("struct").unwrap();
        packer.set("pack", redis.lua.create_function(pack_any).unwrap()).unwrap();
        redis
    }

    /// The value of a key that has not ended.
    pub(crate) fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.server.borrow().live(key.as_bytes()).cloned()
    }

    /// The Lua that the script runs in.
    pub(crate) fn lua(&self) -> &Lua {
        &self.lua
    }
}

impl Executor for FakeRedis {
    fn eval(&mut self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let globals = self.lua.globals();
        globals.raw_set("KEYS", keys.to_vec()).unwrap();
        let args = args.iter().map(|arg| self.lua.create_string(arg).unwrap());
        globals.raw_set("ARGV", self.lua.create_sequence_from(args).unwrap()).unwrap();
        match self.script.call(()).map_err(|error| error.to_string())? {
            Value::String(reply) => Ok(vec![reply.as_bytes().to_vec()]),
            Value::Table(replies) => Ok(replies
                .sequence_values::<LuaString>()
                .map(|reply| reply.unwrap().as_bytes().to_vec())
                .collect()),
            other => Err(format!("{other:?} is no reply")),
        }
    }
}

impl Server {
    fn live(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.keys.get(key).filter(|(_, end)| *end > self.now_us).map(|(value, _)| value)
    }

    fn call(&mut self, lua: &Lua, args: &[Vec<u8>]) -> mlua::Result<Value> {
        let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
        let words: Vec<_> = args.iter().map(Vec::as_slice).collect();
        match words[..] {
            [b"TIME"] => {
                let (seconds, micros) = (self.now_us / 1_000_000, self.now_us % 1_000_000);
                let table = lua.create_sequence_from([seconds.to_string(), micros.to_string()])?;
                Ok(Value::Table(table))
            }
            [b"GET", key] => match self.live(key) {
                Some(value) => text(value),
                None => Ok(Value::Boolean(false)),
            },
            [b"SET", key, value, b"PX", ttl_ms] => {
                let ttl_ms: u64 = std::str::from_utf8(ttl_ms).unwrap().parse().unwrap();
                assert!((1..1 << 50).contains(&ttl_ms), "{ttl_ms} ms");
                let end = self.now_us + ttl_ms * 1_000;
                self.keys.insert(key.to_vec(), (value.to_vec(), end));
                self.writes += 1;
                text(b"OK")
            }
            [b"DEL", key] => {
                self.keys.remove(key);
                self.writes += 1;
                Ok(Value::Integer(1))
            }
            _ => Err(mlua::Error::runtime(format!("unexpected command {words:?}"))),
        }
    }
}

/// An argument as Redis hands it on: numbers with 17 digits.
fn argument(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Number(number) => {
            assert!(number.fract() == 0.0 && number.abs() < 1e17, "`{number}` is no integer");
            format!("{number:.0}").into_bytes()
        }
        other => panic!("{other:?} as an argument"),
    }
}

/// As in Redis, a script has no globals of its own.
fn forbid_globals(lua: &Lua) {
    let meta = lua.create_table().unwrap();
    let refuse = |_: &Lua, (_, name, _): (Value, String, Value)| -> mlua::Result<()> {
        Err(mlua::Error::runtime(format!("the script sets the global `{name}`")))
    };
    meta.set("__newindex", lua.create_function(refuse).unwrap()).unwrap();
    let absent = |_: &Lua, (_, name): (Value, String)| -> mlua::Result<()> {
        Err(mlua::Error::runtime(format!("the script reads the global `{name}`")))
    };
    meta.set("__index", lua.create_function(absent).unwrap()).unwrap();
    lua.globals().set_metatable(Some(meta)).unwrap();
}

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
            ('I' | 'c', Ok(size)) => size,
            _ => panic!("unknown item `{letter}{digits}` in `{format}`"),
        };
        items.push((letter, size));
    }
    items
}

/// `struct.pack` for the items that the script uses, and numbers that are exact.
#[expect(clippy::needless_pass_by_value, reason = "what a function of Lua takes")]
fn pack_in_range(lua: &Lua, args: Variadic<Value>) -> mlua::Result<LuaString> {
    pack(lua, &args, |number| {
        assert!(number.fract() == 0.0, "`{number}` as an integer");
        assert!((-1.0..=2_f64.powi(53)).contains(&number), "`{number}` is packed");
    })
}

/// The same for any numbers.
#[expect(clippy::needless_pass_by_value, reason = "what a function of Lua takes")]
fn pack_any(lua: &Lua, args: Variadic<Value>) -> mlua::Result<LuaString> {
    pack(lua, &args, |_| ())
}

fn pack(lua: &Lua, args: &[Value], check: impl Fn(f64)) -> mlua::Result<LuaString> {
    let format = String::from_utf8(argument(&args[0])).unwrap();
    let mut bytes = Vec::new();
    for ((letter, size), value) in items(&format).into_iter().zip(&args[1..]) {
        match (letter, value) {
            ('c', Value::String(text)) if size == 0 => bytes.extend_from_slice(&text.as_bytes()),
            ('c', Value::String(text)) => bytes.extend_from_slice(&text.as_bytes()[..size]),
            ('d', value) => bytes.extend_from_slice(&double(value).to_le_bytes()),
            (_, value) => {
                let number = double(value);
                check(number);
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

/// `struct.unpack` for the items that the script uses; the place after them comes last.
fn unpack(
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
            'd' => Value::Number(f64::from_le_bytes(bytes.try_into().unwrap())),
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
