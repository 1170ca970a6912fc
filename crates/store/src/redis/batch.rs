//! Joins waiting decisions into one script call, and hands its replies out again.
//!
//! The script takes n keys with two arguments each and replies n values (one key: the value itself), so
//! decisions that wait while a call is in flight go together when its reply comes: a script call over 16
//! keys costs the server well under 16 times a script call over one, and both sides handle fewer, larger
//! packets. When no call is in flight a decision goes at once, alone.
//!
//! Joined decisions stay independent: each takes its own value of the reply, which may be an error of its
//! own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use redis::{Cmd, Pipeline, Value};
use tokio::sync::oneshot;

use super::group::GroupPlace;
use super::late::Late;
use super::load::Ticket;
use super::request::{RequestKind, ScriptArgs, ServerRequest};
use super::{LuaScript, RedisError};

/// The highest cost of the decisions in one call together, in µs: a light one that travels with others
/// waits no longer for them.
const JOINED_US_MAX: u64 = 1_000;

/// Most times a call goes again after the server surely did not execute it.
pub(super) const REPEATS_MAX: u32 = 3;

/// A request, and the receiver of its reply.
#[derive(Debug)]
pub(super) struct QueuedCall {
    pub(super) request: ServerRequest,
    /// `None`: no caller waits for it.
    pub(super) reply: Option<ReplyTo>,
    pub(super) stage: Arc<Stage>,
    /// The number of times that it has been sent and was refused without being executed.
    pub(super) repeats: u32,
    /// Its place in the queue.
    pub(super) _ticket: Ticket,
}

/// The receiver of the reply to a call.
#[derive(Debug)]
pub(super) enum ReplyTo {
    /// A caller with one request.
    One(oneshot::Sender<Result<Value, RedisError>>),
    /// A caller with several requests.
    Group(GroupPlace),
}

/// The stage of a call; it decides for sure whether the call can still be taken back.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

const WAITING: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Commands that are written to a connection in one piece.
#[derive(Debug)]
pub(super) enum Packet {
    One(Cmd),
    /// `ASKING` and the command that it is for.
    Asking(Pipeline),
}

impl ReplyTo {
    /// Returns whether the caller has given up.
    fn is_closed(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_closed(),
            Self::Group(place) => place.is_closed(),
        }
    }

    /// Hands `reply` to the caller; returns it if the caller has given up.
    fn send(self, reply: Result<Value, RedisError>) -> Result<(), Result<Value, RedisError>> {
        match self {
            Self::One(sender) => sender.send(reply),
            Self::Group(place) => place.send(reply),
        }
    }
}

impl Stage {
    /// Marks the call as sent, unless its caller has given up.
    fn send(&self) -> bool {
        self.0.compare_exchange(WAITING, SENT, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks the call as not sent any more: it was surely not executed.
    pub(super) fn call_back(&self) {
        // A caller that gave up does not read it any more.
        self.0.store(WAITING, Ordering::Release);
    }

    /// Gives up; returns `true` if the call was not sent and never will be.
    pub(super) fn give_up(&self) -> bool {
        self.0.compare_exchange(WAITING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Takes the calls of one packet from the front of `waiting`: up to `joined_max` decisions that together
/// cost the server [`JOINED_US_MAX`] at most, or one request of another kind. Calls whose callers gave up
/// are left out; if none remains, the list is empty.
pub(super) fn take(waiting: &mut VecDeque<QueuedCall>, joined_max: usize) -> Vec<QueuedCall> {
    let (mut calls, mut joined_us): (Vec<QueuedCall>, _) = (Vec::new(), 0);
    while calls.len() < joined_max {
        let Some(next) = waiting.front() else { break };
        let joinable = next.request.is_joinable();
        joined_us += next.request.cost_us();
        if !calls.is_empty() && (!joinable || joined_us > JOINED_US_MAX) {
            break;
        }
        let call = waiting.pop_front().expect("the front has just been seen");
        let is_given_up = call.reply.as_ref().is_some_and(ReplyTo::is_closed);
        if is_given_up || !call.stage.send() {
            continue;
        }
        calls.push(call);
        if !joinable {
            break;
        }
    }
    // Decisions of one key in a row, in their order: the script reads and writes its state once for all
    // equal requests.
    calls.sort_by(|a, b| a.request.key().cmp(&b.request.key()));
    calls
}

/// Returns the packet for `calls`, which [`take`] has taken.
pub(super) fn pack(script: &LuaScript, calls: &[QueuedCall]) -> Packet {
    let command = match calls {
        [QueuedCall { request: ServerRequest { what: RequestKind::Plain(command), .. }, .. }]
        | [
            QueuedCall {
                request: ServerRequest { what: RequestKind::Other(_, command), .. }, ..
            },
        ] => command.clone(),
        [
            QueuedCall {
                request: ServerRequest { what: RequestKind::InDebt(ask, noted), .. }, ..
            },
        ] => {
            let ScriptArgs { key, args: [rules, question] } = ask;
            let mut command = redis::cmd("EVALSHA");
            command
                .arg(script.sha1)
                .arg(2)
                .arg(&**key)
                .arg(&**noted)
                .arg(&**rules)
                .arg(&**question);
            command
        }
        _ => evalsha(script, calls),
    };
    if !calls.iter().any(|call| call.request.asking) {
        return Packet::One(command);
    }
    let mut pipeline = Pipeline::with_capacity(2);
    pipeline.cmd("ASKING").add_command(command);
    Packet::Asking(pipeline)
}

/// Hands the values of `reply` to `calls`, each its own. Values without a waiting caller are noted in
/// `late`.
pub(super) fn deliver(mut calls: Vec<QueuedCall>, reply: Value, late: &mut Late) {
    if calls.len() == 1 {
        let call = calls.pop().expect("there is one");
        return call.answer(reply, late);
    }
    match reply {
        Value::Array(values) if values.len() == calls.len() => {
            for (call, value) in calls.into_iter().zip(values) {
                call.answer(value, late);
            }
        }
        // The call as a whole was refused, and so was each in it.
        Value::ServerError(error) => {
            for call in calls {
                call.finish(Ok(Value::ServerError(error.clone())));
            }
        }
        _ => fail(calls, &RedisError::Malformed),
    }
}

/// Sends the same error to all of `calls`.
pub(super) fn fail(calls: impl IntoIterator<Item = QueuedCall>, error: &RedisError) {
    for call in calls {
        call.finish(Err(error.clone()));
    }
}

impl QueuedCall {
    /// Returns the script that it calls; decisions call `ours`.
    pub(super) fn script(&self, ours: LuaScript) -> LuaScript {
        match self.request.what {
            RequestKind::Script(_) | RequestKind::InDebt(..) | RequestKind::Plain(_) => ours,
            RequestKind::Other(script, _) => script,
        }
    }

    /// Returns a call without a waiting caller.
    pub(super) fn for_nobody(request: ServerRequest, ticket: Ticket) -> Self {
        Self { request, reply: None, stage: Arc::default(), repeats: 0, _ticket: ticket }
    }

    pub(super) fn finish(self, result: Result<Value, RedisError>) {
        // A caller that has given up is not an error.
        self.reply.map(|reply| reply.send(result).ok());
    }

    fn answer(self, value: Value, late: &mut Late) {
        if let Some(reply) = self.reply
            && let Err(Ok(value)) = reply.send(Ok(value))
        {
            late.record(&self.request, &value);
        }
    }
}

/// Returns one script call for all of `calls`.
fn evalsha(script: &LuaScript, calls: &[QueuedCall]) -> Cmd {
    let asks = || {
        calls.iter().filter_map(|call| match &call.request.what {
            RequestKind::Script(ask) => Some(ask),
            RequestKind::InDebt(..) | RequestKind::Other(..) | RequestKind::Plain(_) => None,
        })
    };
    let bytes = |ask: &ScriptArgs| ask.key.len() + ask.args[0].len() + ask.args[1].len();
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
    use std::collections::HashMap;

    use bytes::Bytes;

    use super::super::load::Load;
    use super::*;

    type Answer = oneshot::Receiver<Result<Value, RedisError>>;

    const SCRIPT: LuaScript = LuaScript { text: "return 1", sha1: "abc" };

    fn script(key: &'static str) -> ServerRequest {
        ServerRequest::script(ScriptArgs { key: key.into(), args: ["r".into(), "a".into()] })
    }

    fn calls(
        requests: impl IntoIterator<Item = ServerRequest>,
    ) -> (VecDeque<QueuedCall>, Vec<Answer>) {
        let load = Arc::new(Load::new(std::time::Duration::from_secs(1)));
        let pair = |request| {
            let (reply, answer) = oneshot::channel();
            let ticket = load.enter().expect("there is room for a few");
            let stage = Arc::new(Stage::default());
            let reply = Some(ReplyTo::One(reply));
            (QueuedCall { request, reply, stage, repeats: 0, _ticket: ticket }, answer)
        };
        requests.into_iter().map(pair).unzip()
    }

    fn value(answer: &mut Answer) -> Result<Value, RedisError> {
        answer.try_recv().expect("an answer was given")
    }

    #[test]
    fn decisions_are_joined_up_to_the_maximum_and_commands_go_alone() {
        let asking = ServerRequest { asking: true, ..script("k") };
        let requests = vec![
            script("a"),
            script("b"),
            script("c"),
            RequestKind::Plain(redis::cmd("GET")).into(),
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
    fn decisions_travel_together_up_to_a_millisecond_of_the_server() {
        use sluicegate_kernel::{Concurrency, Micros, Rate, RuleSet, SlidingLog, TokenBucket};

        use crate::RuleOrigin;
        use crate::redis::codec::RulesBlob;

        let second = Micros::SECOND;
        let rules = [
            RuleSet::single("a", TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap()),
            RuleSet::single("a", SlidingLog::new(2_500, second).unwrap()),
            RuleSet::single("a", Concurrency::new(1_000, second, 0).unwrap()),
        ];
        let of = |place: usize| {
            let blob = RulesBlob::new(&rules[place], RuleOrigin::default());
            ServerRequest::script(ScriptArgs {
                key: "k".into(),
                args: [blob.to_bytes(), "a".into()],
            })
        };
        let requests = [1, 1, 1, 1, 0, 2, 2, 2, 0, 2].map(of);
        let (mut waiting, _answers) = calls(requests);
        let sizes: Vec<_> = std::iter::from_fn(|| {
            let calls = take(&mut waiting, 16);
            (!calls.is_empty()).then_some(calls.len())
        })
        .collect();
        assert_eq!(sizes, [3, 4, 3]);
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
    fn decisions_on_one_key_go_in_a_row_and_in_their_order() {
        let ask = |key: &'static str, ask: &'static str| {
            ServerRequest::script(ScriptArgs { key: key.into(), args: ["r".into(), ask.into()] })
        };
        let requests = [ask("b", "1"), ask("a", "2"), ask("b", "3"), ask("a", "4"), ask("b", "5")];
        let (mut waiting, _answers) = calls(requests);
        let order: Vec<_> = take(&mut waiting, 16)
            .iter()
            .map(|call| match &call.request.what {
                RequestKind::Script(ask) => ask.args[1].clone(),
                _ => panic!("only scripts were asked for"),
            })
            .collect();
        assert_eq!(order, ["2", "4", "1", "3", "5"]);
    }

    #[test]
    fn what_was_granted_to_nobody_is_given_back_once_for_all_of_a_key() {
        let window = [0, 0, 0, 2, 0, 1, 5, 0, 0];
        let check = [1, 0, 3, 0, 0, 0];
        let request = |key: &'static str| {
            let args = [Bytes::copy_from_slice(&window), Bytes::copy_from_slice(&check)];
            ServerRequest::script(ScriptArgs { key: key.into(), args })
        };
        let granted = |permits: u8| {
            let mut reply = vec![1, 0, permits, 0, 0, 0];
            reply.resize(27, 0);
            // The window lasts for some two minutes more.
            reply[23] = 8;
            Value::BulkString(reply)
        };
        let mut refused = vec![0; 27];
        refused[6] = 9;
        let keys = ["a", "b", "a", "c", "d"];
        let (mut waiting, mut answers) = calls(keys.map(request));
        let sent = take(&mut waiting, 16);
        let last = answers.pop().expect("there are five");
        answers.clear();
        let mut late = Late::default();
        let values =
            vec![granted(3), granted(3), granted(3), Value::BulkString(refused), granted(3)];
        deliver(sent, Value::Array(values), &mut late);
        drop(last);
        let given_back: HashMap<_, _> = late
            .take()
            .into_iter()
            .map(|request| match request.what {
                RequestKind::Script(ask) => (ask.key, ask.args[1].to_vec()),
                _ => panic!("refunds are decisions"),
            })
            .collect();
        let refunds =
            [("a", 6), ("b", 3)].map(|(key, cost)| (key.into(), vec![5, 0, cost, 0, 0, 0]));
        assert_eq!(given_back, refunds.into());
        assert!(late.take().is_empty());
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
        deliver(take(&mut waiting, 16), reply, &mut Late::default());
        assert_eq!(value(&mut answers[0]), Ok(Value::Int(1)));
        assert_eq!(value(&mut answers[1]), Ok(Value::Int(2)));
    }

    #[test]
    fn a_reply_that_does_not_fit_is_given_to_nobody() {
        for reply in [Value::Nil, Value::Array(vec![Value::Int(1)]), Value::Int(1)] {
            let (mut waiting, mut answers) = calls([script("a"), script("b")]);
            deliver(take(&mut waiting, 16), reply, &mut Late::default());
            for answer in &mut answers {
                assert_eq!(value(answer), Err(RedisError::Malformed));
            }
        }
    }
}
