//! Joins decisions that wait into one script call, and hands its replies out again.
//!
//! The script takes n keys with two arguments each and replies n values (one key: the value
//! itself), so what waits while a call is in flight goes together when its reply comes: a script
//! call over 16 keys costs the server well under 16 times a script call over one, and both sides
//! handle fewer, larger packets. When nothing is in flight a decision goes at once, alone.
//!
//! Neighbours stay apart: each takes its own value of the reply, which may be an error of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;

use super::{LuaScript, RedisError};

/// One key for the script, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The key that the script may read and write.
    pub key: Bytes,
    /// The two arguments that belong to it.
    pub args: [Bytes; 2],
}

/// A request and whoever awaits its reply.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Result<Value, RedisError>>,
    pub(super) stage: std::sync::Arc<Stage>,
    /// How often it has been sent and was refused without being executed.
    pub(super) repeats: u32,
}

/// What is wanted of the server.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) what: What,
    /// Whether the server is to answer for a slot that is still being moved to it.
    pub(super) asking: bool,
}

/// The kinds of calls.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A decision; it may be joined with others.
    Script(Ask),
    /// A command that calls another script.
    Other(LuaScript, Cmd),
    /// A command without a script.
    Plain(Cmd),
}

/// How far a call has come; says for sure whether it can still be called back.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

const WAITING: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

/// What is written to a connection in one piece.
#[derive(Debug)]
pub(super) enum Packet {
    One(Cmd),
    /// `ASKING` and the command that it is for.
    Asking(Pipeline),
}

impl Stage {
    /// Marks the call as sent, unless its caller has given up.
    fn send(&self) -> bool {
        self.0.compare_exchange(WAITING, SENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks the call as not sent any more: it was surely not executed.
    pub(super) fn call_back(&self) {
        // A caller that gave up does not look any more.
        self.0.store(WAITING, Ordering::Release);
    }

    /// Gives up: true if the call was not sent and never will be.
    pub(super) fn give_up(&self) -> bool {
        self.0.compare_exchange(WAITING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Takes from the front of `waiting` what goes in one packet: up to `joined_max` decisions, or one
/// request of another kind. Whoever gave up is left out; nobody is left: an empty list.
pub(super) fn take(waiting: &mut VecDeque<Call>, joined_max: usize) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    while calls.len() < joined_max {
        let Some(next) = waiting.front() else { break };
        let joinable = next.request.is_joinable();
        if !joinable && !calls.is_empty() {
            break;
        }
        let call = waiting.pop_front().expect("the front has just been seen");
        if call.reply.is_closed() || !call.stage.send() {
            continue;
        }
        calls.push(call);
        if !joinable {
            break;
        }
    }
    calls
}

/// What to write for `calls`, which [`take`] has taken.
pub(super) fn pack(script: &LuaScript, calls: &[Call]) -> Packet {
    let command = match calls {
        [Call { request: Request { what: What::Plain(command), .. }, .. }]
        | [Call { request: Request { what: What::Other(_, command), .. }, .. }] => command.clone(),
        _ => evalsha(script, calls),
    };
    if !calls.iter().any(|call| call.request.asking) {
        return Packet::One(command);
    }
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(command);
    Packet::Asking(pipeline)
}

/// Hands the values of `reply` to `calls`, each its own.
pub(super) fn deliver(mut calls: Vec<Call>, reply: Value) {
    if calls.len() == 1 {
        let call = calls.pop().expect("there is one");
        return call.finish(Ok(reply));
    }
    match reply {
        Value::Array(values) if values.len() == calls.len() => {
            for (call, value) in calls.into_iter().zip(values) {
                call.finish(Ok(value));
            }
        }
        // The call as a whole was refused: that holds for each in it.
        Value::ServerError(error) => {
            for call in calls {
                call.finish(Ok(Value::ServerError(error.clone())));
            }
        }
        _ => fail(calls, &RedisError::Malformed),
    }
}

/// Tells all of `calls` the same error.
pub(super) fn fail(calls: impl IntoIterator<Item = Call>, error: &RedisError) {
    for call in calls {
        call.finish(Err(error.clone()));
    }
}

impl Call {
    /// The script that it calls, where decisions call `ours`.
    pub(super) fn script(&self, ours: LuaScript) -> LuaScript {
        match self.request.what {
            What::Script(_) | What::Plain(_) => ours,
            What::Other(script, _) => script,
        }
    }

    pub(super) fn finish(self, result: Result<Value, RedisError>) {
        // Nobody there is no mistake: the caller may have given up.
        let _ = self.reply.send(result);
    }
}

impl Request {
    /// A decision for whichever server the connection leads to.
    pub(super) fn script(ask: Ask) -> Self {
        What::Script(ask).into()
    }

    fn is_joinable(&self) -> bool {
        !self.asking && matches!(self.what, What::Script(_))
    }
}

impl From<What> for Request {
    /// It is for whichever server the connection leads to.
    fn from(what: What) -> Self {
        Self { what, asking: false }
    }
}

/// One script call for all of `calls`.
fn evalsha(script: &LuaScript, calls: &[Call]) -> Cmd {
    let asks = || {
        calls.iter().filter_map(|call| match &call.request.what {
            What::Script(ask) => Some(ask),
            What::Other(..) | What::Plain(_) => None,
        })
    };
    let bytes = |ask: &Ask| ask.key.len() + ask.args[0].len() + ask.args[1].len();
    let size = script.sha1.len() + asks().map(bytes).sum::<usize>();
    let mut command = Cmd::with_capacity(3 + 3 * calls.len(), size + 16);
    command.arg("EVALSHA").arg(script.sha1).arg(calls.len());
    for ask in asks() {
        command.arg(&*ask.key);
    }
    for ask in asks() {
        command.arg(&*ask.args[0]).arg(&*ask.args[1]);
    }
    command
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    type Answer = oneshot::Receiver<Result<Value, RedisError>>;

    const SCRIPT: LuaScript = LuaScript { text: "return 1", sha1: "abc" };

    fn script(key: &'static str) -> Request {
        Request::script(Ask { key: key.into(), args: ["r".into(), "a".into()] })
    }

    fn calls(requests: impl IntoIterator<Item = Request>) -> (VecDeque<Call>, Vec<Answer>) {
        let pair = |request| {
            let (reply, answer) = oneshot::channel();
            (Call { request, reply, stage: Arc::new(Stage::default()), repeats: 0 }, answer)
        };
        requests.into_iter().map(pair).unzip()
    }

    fn value(answer: &mut Answer) -> Result<Value, RedisError> {
        answer.try_recv().expect("an answer was given")
    }

    #[test]
    fn decisions_are_joined_up_to_the_maximum_and_commands_go_alone() {
        let asking = Request { asking: true, ..script("k") };
        let requests = vec![
            script("a"),
            script("b"),
            script("c"),
            What::Plain(redis::cmd("GET")).into(),
            asking,
            script("d"),
        ];
        let (mut waiting, _answers) = calls(requests);
        let sizes: Vec<_> = std::iter::from_fn(|| {
            let calls = take(&mut waiting, 2);
            (!calls.is_empty()).then_some(calls.len())
        })
        .collect();
        assert_eq!(sizes, [2, 1, 1, 1, 1]);
    }

    #[test]
    fn keys_go_first_and_each_has_its_arguments_in_the_same_order() {
        let (mut waiting, _answers) = calls([script("a"), script("b")]);
        let Packet::One(command) = pack(&SCRIPT, &take(&mut waiting, 16)) else { panic!() };
        let packed = String::from_utf8(command.get_packed_command()).expect("text");
        let words: Vec<_> = packed.split("\r\n").filter(|word| !word.starts_with('$')).collect();
        assert_eq!(words, ["*9", "EVALSHA", "abc", "2", "a", "b", "r", "a", "r", "a", ""]);
    }

    #[test]
    fn whoever_gave_up_is_not_sent() {
        let (mut waiting, mut answers) = calls([script("a"), script("b"), script("c")]);
        drop(answers.remove(0));
        assert!(waiting[1].stage.give_up(), "it was not sent yet");
        let sent = take(&mut waiting, 16);
        assert_eq!(sent.len(), 1);
        assert!(!sent[0].stage.give_up(), "it is too late for this one");
        assert!(waiting.is_empty());
    }

    #[test]
    fn each_gets_its_own_value_and_its_own_error() {
        let (mut waiting, mut answers) = calls([script("a"), script("b")]);
        let reply = Value::Array(vec![Value::Int(1), Value::Int(2)]);
        deliver(take(&mut waiting, 16), reply);
        assert_eq!(value(&mut answers[0]), Ok(Value::Int(1)));
        assert_eq!(value(&mut answers[1]), Ok(Value::Int(2)));
    }

    #[test]
    fn a_reply_that_does_not_fit_is_given_to_nobody() {
        for reply in [Value::Nil, Value::Array(vec![Value::Int(1)]), Value::Int(1)] {
            let (mut waiting, mut answers) = calls([script("a"), script("b")]);
            deliver(take(&mut waiting, 16), reply);
            for answer in &mut answers {
                assert_eq!(value(answer), Err(RedisError::Malformed));
            }
        }
    }
}
