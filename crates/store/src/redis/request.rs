//! Requests to a server.

use bytes::Bytes;
use redis::Cmd;

use super::LuaScript;
use super::blob;

/// One key for the script, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScriptArgs {
    /// The key that the script may read and write.
    pub key: Bytes,
    /// The two arguments that belong to it.
    pub args: [Bytes; 2],
}

/// A request to the server.
#[derive(Clone, Debug)]
pub(super) struct ServerRequest {
    pub(super) what: RequestKind,
    /// The server is to answer for a slot that is still being moved to it.
    pub(super) asking: bool,
}

/// The kinds of calls.
#[derive(Clone, Debug)]
pub(super) enum RequestKind {
    /// A decision; it may be joined with others.
    Script(ScriptArgs),
    /// A decision after a debt is charged; what was charged is noted at the second key.
    InDebt(ScriptArgs, Bytes),
    /// A command that calls another script.
    Other(LuaScript, Cmd),
    /// A command without a script.
    Plain(Cmd),
}

impl ServerRequest {
    /// Returns a decision for whichever server the connection leads to.
    pub(super) fn script(ask: ScriptArgs) -> Self {
        RequestKind::Script(ask).into()
    }

    /// Returns the highest cost for the server, estimated, in µs.
    pub(super) fn cost_us(&self) -> u64 {
        match &self.what {
            RequestKind::Script(ask) | RequestKind::InDebt(ask, _) => blob::cost_us(&ask.args[0]),
            RequestKind::Other(..) | RequestKind::Plain(_) => 0,
        }
    }

    /// Returns the key that is decided on.
    pub(super) fn key(&self) -> Option<&Bytes> {
        match &self.what {
            RequestKind::Script(ask) | RequestKind::InDebt(ask, _) => Some(&ask.key),
            RequestKind::Other(..) | RequestKind::Plain(_) => None,
        }
    }

    /// Returns whether it may travel with others in one call.
    pub(super) fn is_joinable(&self) -> bool {
        !self.asking && matches!(self.what, RequestKind::Script(_))
    }
}

impl From<RequestKind> for ServerRequest {
    /// Makes a request for whichever server the connection leads to.
    fn from(what: RequestKind) -> Self {
        Self { what, asking: false }
    }
}
