//! Runs the scripts of Redis in the process of a test: Lua 5.1, with the parts of Redis that they call.
//!
//! A [`LuaRedis`] is one server with one script. You set its time, so that nothing sleeps, and you can read, damage and
//! restore its keys.
//!
//! ```
//! let redis = sluicegate_lua::LuaRedis::new("return redis.call('GET', KEYS[1]) or ARGV[1]");
//! let reply = redis.eval(&["key".into()], &[b"none".to_vec()]);
//! assert_eq!(reply, Ok(vec![b"none".to_vec()]));
//! ```

mod packing;

use std::collections::HashMap;
use std::sync::Arc;

use mlua::{Function, Lua, LuaString, Table, Value, Variadic};
use parking_lot::{Mutex, MutexGuard};

/// One server with one script. It supports `GET`, `SET key value PX ttl`, `DEL` and `TIME`, none of which fails.
#[derive(Debug)]
pub struct LuaRedis {
    lua: Lua,
    script: Function,
    keys: Arc<Mutex<LuaKeys>>,
}

/// The keys and the time of the server.
#[derive(Debug, Default)]
pub struct LuaKeys {
    /// The time that `TIME` returns, in µs since 1970; keys expire by it.
    pub now_us: u64,
    /// Value and expiry (µs since 1970) of each key.
    pub values: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    /// Commands that changed keys.
    pub writes: u64,
    /// The keys as they were before each of these commands, the earliest first. Callers remove entries themselves.
    pub changes: Vec<KeyBefore>,
}

/// A key before a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBefore {
    /// The key.
    pub key: Vec<u8>,
    /// Its value and expiry; `None`: there was no such key.
    pub before: Option<(Vec<u8>, u64)>,
}

impl LuaRedis {
    /// A server without keys, whose script is `text`. A number that is not an integer, or out of the range of
    /// `struct.pack`, fails the test.
    ///
    /// # Panics
    /// If `text` is not valid Lua.
    pub fn new(text: &str) -> Self {
        Self::with_packing(text, packing::pack_in_range)
    }

    /// Like [`new`](Self::new), but packs any number, as Redis does.
    ///
    /// # Panics
    /// If `text` is not valid Lua.
    pub fn lenient(text: &str) -> Self {
        Self::with_packing(text, packing::pack_any)
    }

    fn with_packing(
        text: &str,
        pack: fn(&Lua, Variadic<Value>) -> mlua::Result<LuaString>,
    ) -> Self {
        let (lua, keys) = (Lua::new(), Arc::new(Mutex::new(LuaKeys::default())));
        let script = lua.load(text).set_name("script").into_function();
        let script = script.expect("the script is Lua");
        prepare(&lua, &keys, pack).expect("an interpreter has room for a few functions");
        Self { lua, script, keys }
    }

    /// Runs the script with these keys and arguments. Returns its reply: one string, or a list of them.
    ///
    /// # Errors
    /// The text of the script's error, or an error if its reply is neither.
    pub fn eval(&self, keys: &[String], args: &[impl AsRef<[u8]>]) -> Result<Vec<Vec<u8>>, String> {
        self.run(keys, args).map_err(|error| error.to_string())
    }

    fn run(&self, keys: &[String], args: &[impl AsRef<[u8]>]) -> mlua::Result<Vec<Vec<u8>>> {
        let globals = self.lua.globals();
        globals.raw_set("KEYS", keys)?;
        let args = args.iter().map(|arg| self.lua.create_string(arg));
        let args = args.collect::<mlua::Result<Vec<_>>>()?;
        globals.raw_set("ARGV", self.lua.create_sequence_from(args)?)?;
        match self.script.call(())? {
            Value::String(reply) => Ok(vec![reply.as_bytes().to_vec()]),
            Value::Table(replies) => replies
                .sequence_values::<LuaString>()
                .map(|reply| Ok(reply?.as_bytes().to_vec()))
                .collect(),
            other => Err(mlua::Error::runtime(format!("{other:?} is no reply"))),
        }
    }

    /// Locks the keys and the time of the server. No script runs while you hold the lock.
    pub fn keys(&self) -> MutexGuard<'_, LuaKeys> {
        self.keys.lock()
    }

    /// Returns the value of a key that has not expired.
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        self.keys().live(key.as_bytes()).cloned()
    }

    /// Returns the interpreter.
    pub const fn lua(&self) -> &Lua {
        &self.lua
    }
}

impl LuaKeys {
    /// Returns the value of a key that has not expired.
    pub fn live(&self, key: &[u8]) -> Option<&Vec<u8>> {
        self.values.get(key).filter(|(_, end)| *end > self.now_us).map(|(value, _)| value)
    }

    /// Returns the value of a key. A value that has expired is removed, as Redis does on a read: it does not come back
    /// if the clock is set back.
    pub fn get(&mut self, key: &[u8]) -> Option<&Vec<u8>> {
        if self.live(key).is_none() {
            self.values.remove(key);
        }
        self.values.get(key).map(|(value, _)| value)
    }

    /// Sets the value of a key, which expires after `ttl_ms`.
    pub fn set(&mut self, key: &[u8], value: &[u8], ttl_ms: u64) {
        let end = self.now_us + ttl_ms * 1_000;
        let before = self.values.insert(key.to_vec(), (value.to_vec(), end));
        self.note(KeyBefore { key: key.to_vec(), before });
    }

    /// Removes a key.
    pub fn delete(&mut self, key: &[u8]) {
        let before = self.values.remove(key);
        self.note(KeyBefore { key: key.to_vec(), before });
    }

    fn note(&mut self, change: KeyBefore) {
        self.writes += 1;
        self.changes.push(change);
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
            [b"GET", key] => match self.get(key) {
                Some(value) => text(value),
                None => Ok(Value::Boolean(false)),
            },
            [b"SET", key, value, b"PX", ttl_ms] => {
                let ttl_ms = std::str::from_utf8(ttl_ms).ok().and_then(|ttl| ttl.parse().ok());
                let ttl_ms = ttl_ms.filter(|ttl| (1..1 << 50).contains(ttl));
                self.set(key, value, ttl_ms.expect("a span is 1 ms to 2^50 ms"));
                text(b"OK")
            }
            [b"DEL", key] => {
                self.delete(key);
                Ok(Value::Integer(1))
            }
            _ => Err(mlua::Error::runtime(format!("unexpected command {words:?}"))),
        }
    }
}

/// Provides the globals of Redis, `redis` and `struct`, and forbids others.
fn prepare(
    lua: &Lua,
    keys: &Arc<Mutex<LuaKeys>>,
    pack: fn(&Lua, Variadic<Value>) -> mlua::Result<LuaString>,
) -> mlua::Result<()> {
    let shared = Arc::clone(keys);
    let call = lua.create_function(move |lua, args: Variadic<Value>| {
        let args: Vec<_> = args.iter().map(argument).collect();
        shared.lock().call(lua, &args)
    })?;
    let redis = lua.create_table()?;
    // No command fails here, so `call` can serve as `pcall`.
    redis.set("pcall", &call)?;
    redis.set("call", call)?;
    lua.globals().set("redis", redis)?;
    let packer = lua.create_table()?;
    packer.set("pack", lua.create_function(pack)?)?;
    packer.set("unpack", lua.create_function(packing::unpack)?)?;
    lua.globals().set("struct", packer)?;
    forbid_globals(lua)
}

/// Makes a script that reads or sets a global of its own fail, as Redis does.
fn forbid_globals(lua: &Lua) -> mlua::Result<()> {
    let meta = lua.create_table()?;
    let refuse = |_: &Lua, (_, name, _): (Table, String, Value)| -> mlua::Result<()> {
        Err(mlua::Error::runtime(format!("the script sets the global `{name}`")))
    };
    meta.set("__newindex", lua.create_function(refuse)?)?;
    let absent = |_: &Lua, (_, name): (Table, String)| -> mlua::Result<()> {
        Err(mlua::Error::runtime(format!("the script reads the global `{name}`")))
    };
    meta.set("__index", lua.create_function(absent)?)?;
    lua.globals().set_metatable(Some(meta))
}

/// An argument as Redis passes it on: numbers with 17 digits.
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
