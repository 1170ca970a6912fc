//! The script in this process.

use sluicegate_lua::LuaRedis;
use sluicegate_store::redis::script;

use crate::redis_script::subject::Executor;

/// Returns a server that has the script.
pub(crate) fn redis() -> LuaRedis {
    LuaRedis::new(script::TEXT)
}

/// Returns a server that packs numbers that the script never makes as Redis does.
pub(crate) fn lenient_redis() -> LuaRedis {
    LuaRedis::lenient(script::TEXT)
}

impl Executor for LuaRedis {
    fn eval(&mut self, keys: &[String], args: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        Self::eval(self, keys, args)
    }
}
