//! The vectors of `spec/`.

use sluicegate_conformance::{load, run};
use sluicegate_store::redis::codec::ScriptClock;

use crate::redis_script::lua::FakeRedis;
use crate::redis_script::server::RealRedis;
use crate::redis_script::subject::{Executor, Scripted};

pub(crate) fn answers_every_vector(executor: impl Executor) {
    let mut subject = Scripted::new(executor, ScriptClock::Given);
    let vectors = load().unwrap();
    assert!(vectors.len() > 50, "only {} vectors", vectors.len());
    let mut problems = Vec::new();
    for (_, vector) in &vectors {
        problems.extend(run(vector, &mut subject).err().map(|problem| problem.to_string()));
    }
    assert!(
        problems.is_empty(),
        "{} of {}:\n{}",
        problems.len(),
        vectors.len(),
        problems.join("\n")
    );
}

#[test]
fn the_script_answers_every_vector_in_lua() {
    answers_every_vector(FakeRedis::new());
}

#[test]
fn the_script_answers_every_vector_in_a_real_server() {
    if let Some(server) = RealRedis::start() {
        answers_every_vector(server);
    }
}
